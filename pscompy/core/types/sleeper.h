/* A sleeper (what a thread sleeps on), and the worker's state of its sleepers.
 * progress/sleep.h has the rule by which they are woken. */
#ifndef PSCOMPY_CORE_TYPES_SLEEPER_H
#define PSCOMPY_CORE_TYPES_SLEEPER_H

#include <stdatomic.h>

#include "../api.h"
#include "pscompy/transport/kit/list.h"

/* Reasons to ring a bell, the eventfd that wakes a sleeper's thread. */
#define PSC_WAKE_SPENT 1u /* the arming is used up or does not suffice */
/* a request, the completion queue or the queue of active messages changed, or
 * psc_worker_wake was called */
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
    /* the wake generation when the owner last looked at its requests */
    uint32_t seen;
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

/* The wake generation (the number of changes that a thread may wait for), and
 * the threads that sleep. */
typedef struct psc_wait_state {
    atomic_uint generation;
    /* PSC_WAKE_ bits that any armed sleeper or follower wants */
    atomic_uint wanted;
    atomic_uint polling; /* 1: a thread holds the poller's role */
    /* number of calls of psc_worker_wake; each ends all waits */
    atomic_uint wakes;
    atomic_uint crowded; /* not 0: pollers share this processor; see spin.c */
    atomic_llong moving; /* time until which a peer may be copying; spin.h */
    unsigned wakes_seen; /* `wakes` when the followers were last woken */
    psc_list_t followers, sleepers;
    /* Futex words of woken followers. The system calls are made when the lock
     * has been released, because a woken thread soon wants the lock. */
    atomic_uint *woken[PSC_WOKEN_MAX];
    uint32_t n_woken;
    psc_sleeper_t poller, control;
    psc_sleeper_t *outside; /* sleeper of psc_worker_fd, created on first use */
} psc_wait_state_t;

#endif
