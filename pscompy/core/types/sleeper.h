/* A sleeper, and what a worker knows of its sleepers. progress/sleep.h has the
 * rule by which they are woken. */
#ifndef PSCOMPY_CORE_TYPES_SLEEPER_H
#define PSCOMPY_CORE_TYPES_SLEEPER_H

#include <stdatomic.h>

#include "../api.h"
#include "pscompy/transport/kit/list.h"

/* Why a bell is rung. */
#define PSC_WAKE_SPENT 1u /* what was armed is used up, or does not suffice */
#define PSC_WAKE_NEWS                                                          \
    2u  /* a request, the completions or the messages have                     \
           changed, or psc_worker_wake was called */
#define PSC_WAKE_FREE 4u  /* the poller's role is free */
#define PSC_WAKE_TAKEN 8u /* somebody has taken it */
#define PSC_WAKE_POLLED 16u /* somebody has polled */

struct psc_sleeper {
    psc_worker_t *worker;
    psc_link_t link;   /* of all of this worker */
    int set, bell;
    uint32_t wants;    /* PSC_WAKE_ bits that ring the bell; 0: not armed */
    uint32_t seen;     /* the generation at which its owner has looked */
    bool rung;         /* the bell is readable */
    atomic_int life;   /* psc_sleeper_life_t, of one that was created */
};

typedef enum psc_sleeper_life {
    PSC_SLEEPER_USED,
    PSC_SLEEPER_RELEASED,
    PSC_SLEEPER_ENDED  /* its worker has ended */
} psc_sleeper_life_t;

/* The wake generation and those who sleep on it. */
typedef struct psc_wait_state {
    atomic_uint generation;
    atomic_uint wanted;  /* what the armed sleepers want, all together */
    atomic_uint polling; /* 1: somebody has the poller's role */
    atomic_uint wakes;   /* calls of psc_worker_wake: all who wait return */
    atomic_uint crowded; /* not 0: pollers share this processor; see spin.c */
    uint32_t followers;  /* what threads that sleep on the generation want */
    psc_list_t sleepers;
    psc_sleeper_t poller, control;
    psc_sleeper_t *outside; /* that of psc_worker_fd, once it is needed */
} psc_wait_state_t;

#endif
