/* A sleeper, and the worker's state of its sleepers. progress/sleep.h has the
 * rule by which they are woken. */
#ifndef PSCOMPY_CORE_TYPES_SLEEPER_H
#define PSCOMPY_CORE_TYPES_SLEEPER_H

#include <stdatomic.h>

#include "../api.h"
#include "pscompy/transport/kit/list.h"

/* Why a bell is rung. */
#define PSC_WAKE_SPENT 1u /* the arming is used up or insufficient */
/* a request, the completions or the messages changed, or psc_worker_wake was
 * called */
#define PSC_WAKE_EVENT 2u
#define PSC_WAKE_FREE 4u  /* the poller's role is free */
#define PSC_WAKE_TAKEN 8u /* a thread has taken the poller's role */
#define PSC_WAKE_POLLED 16u /* a thread has polled */
#define PSC_WAKE_END 32u /* psc_worker_wake was called */

struct psc_sleeper {
    psc_worker_t *worker;
    psc_link_t link;   /* in the worker's list of sleepers */
    int set, bell;
    uint32_t wants;    /* PSC_WAKE_ bits that ring the bell; 0: not armed */
    uint32_t seen;     /* the generation when its owner last looked */
    bool rung;         /* the bell is readable */
    atomic_int life;   /* psc_sleeper_life_t; only of a created sleeper */
};

typedef enum psc_sleeper_life {
    PSC_SLEEPER_USED,
    PSC_SLEEPER_RELEASED,
    PSC_SLEEPER_ENDED  /* the worker has ended */
} psc_sleeper_life_t;

/* A thread that waits while another thread polls; progress/follow.h. */
struct psc_follower {
    psc_link_t link; /* in the worker's followers; the earliest is first */
    psc_request_t *const *requests; /* the thread waits for any of them */
    size_t n;
    uint32_t wants;
    atomic_uint woken; /* the futex; 1: woken and disarmed */
};

#define PSC_WOKEN_MAX 16u

/* The wake generation, and the threads that sleep. */
typedef struct psc_wait_state {
    atomic_uint generation;
    atomic_uint wanted;  /* union of what the armed sleepers want */
    atomic_uint polling; /* 1: a thread holds the poller's role */
    atomic_uint wakes;   /* calls of psc_worker_wake: each ends all waits */
    atomic_uint crowded; /* not 0: pollers share this processor; see spin.c */
    atomic_llong moving; /* time until which a peer may be copying; spin.h */
    unsigned wakes_seen; /* `wakes` when the followers were last woken */
    psc_list_t followers, sleepers;
    /* Words of woken followers. The system calls are made when the lock has
     * been released, because a woken thread soon wants it. */
    atomic_uint *woken[PSC_WOKEN_MAX];
    uint32_t n_woken;
    psc_sleeper_t poller, control;
    psc_sleeper_t *outside; /* sleeper of psc_worker_fd, created on first use */
} psc_wait_state_t;

#endif
