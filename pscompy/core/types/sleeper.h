/* A sleeper (what a thread sleeps on), and the worker's state of its sleepers.
 * progress/sleep.h has the rule by which they are woken. */
#pragma once

#include <stdatomic.h>

#include "../api.h"
#include "pscompy/transport/kit/list.h"

/* Reasons to ring a doorbell, the eventfd that wakes a sleeper's thread. */
/* the fabrics are not armed for the sleeper any more, or work was queued that
 * the fabrics do not report */
#define PSC_WAKE_SPENT 1u
/* a request, the completion queue or the queue of active messages changed, or
 * psc_worker_wake was called */
#define PSC_WAKE_EVENT 2u
/* the poller's role is free: no thread polls for the others */
#define PSC_WAKE_FREE 4u
/* a thread has taken the poller's role: it polls for all */
#define PSC_WAKE_TAKEN 8u
#define PSC_WAKE_POLLED 16u /* a thread has polled */
#define PSC_WAKE_END 32u /* psc_worker_wake was called */
/* the completion queue or the queue of active messages has something, and the
 * thread that polls for all does not take it (PSC_WAIT_OWN) */
#define PSC_WAKE_QUEUED 64u
/* Not a reason, but a flag of psc_sleeper_try: arm although one of these queues
 * has something. */
#define PSC_WAKE_OWN 128u

struct psc_sleeper {
    psc_worker_t *worker;
    psc_link_t link;   /* link in the worker's list of sleepers */
    int set, doorbell;
    uint32_t wants; /* PSC_WAKE_ bits that ring the doorbell; 0: not armed */
    /* the wake generation (psc_wait_state_t.generation) when the owner last
     * looked at its requests */
    uint32_t seen;
    bool rung; /* the doorbell (an eventfd) is readable */
    /* psc_sleeper_life_t; used only if psc_sleeper_create made the sleeper */
    atomic_int life;
};

typedef enum psc_sleeper_life {
    PSC_SLEEPER_USED,
    PSC_SLEEPER_RELEASED,
    PSC_SLEEPER_ENDED /* the worker has ended */
} psc_sleeper_life_t;

/* A thread that waits while another thread polls; progress/progress.h. */
struct psc_follower {
    /* link in the worker's list of followers; the earliest is first */
    psc_link_t link;
    /* the requests for any of which the thread waits */
    psc_request_t *const *requests;
    size_t n;
    uint32_t wants;
    /* the futex word on which the thread sleeps; 1: woken and disarmed */
    atomic_uint woken;
};

#define PSC_WOKEN_MAX 16u
/* Values of psc_wait_state_t.polling: the thread that polls for all threads
 * also takes what is queued (completions and active messages) */
#define PSC_POLLING 1u
/* it leaves what is queued to other threads (PSC_WAIT_OWN) */
#define PSC_POLLING_OWN 2u

/* The wake generation (the number of changes that a thread may wait for), and
 * the threads that sleep. */
typedef struct psc_wait_state {
    atomic_uint generation;
    /* PSC_WAKE_ bits that any armed sleeper or follower wants */
    atomic_uint wanted;
    /* not 0: a thread holds the poller's role, which is to poll for all threads
     * that wait; PSC_POLLING or PSC_POLLING_OWN */
    atomic_uint polling;
    /* number of calls of psc_worker_wake; each ends all waits */
    atomic_uint wakes;
    /* not 0: several polling threads share this processor; see spin.c */
    atomic_uint crowded;
    /* the last receive that polled with the GIL held found nothing; spin.c */
    atomic_bool vain;
    /* time until which a peer may be copying (psc_spin_expect) */
    atomic_llong moving;
    unsigned wakes_seen; /* `wakes` when the followers were last woken */
    psc_list_t followers, sleepers;
    /* Futex words of woken followers. The system calls are made when the lock
     * has been released, because a woken thread soon wants the lock. */
    atomic_uint *woken[PSC_WOKEN_MAX];
    uint32_t n_woken;
    psc_sleeper_t poller, control;
    psc_sleeper_t *outside; /* sleeper of psc_worker_fd, created on first use */
} psc_wait_state_t;
