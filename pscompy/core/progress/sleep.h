/* Sleepers, and the one rule by which they are woken. Private to the core.
 *
 * A sleeper is a set of descriptors, those of all fabrics and a bell of its
 * own, for a thread that has nothing to do until one of them is readable. It
 * arms before it sleeps: the fabrics then fire their descriptors for whatever
 * arrives next. Every pass over the fabrics uses that up, whoever makes it.
 *
 * The rule. All of it happens with the worker's lock held:
 *  1. What a sleeper waits for changes together with the wake generation, and
 *     that rings the bell of every armed sleeper. A rung one is not armed any
 *     more.
 *  2. A sleeper arms only if the generation is still the one at which it
 *     looked; or it looks after it has armed.
 *  3. Whoever has used up what was armed settles that: the fabrics are armed
 *     again, for all, or every armed sleeper is rung. It does so before it
 *     stops to poll; each function of psc_api_t, before it returns.
 *  4. Work that is queued, which arming did not know of, rings them, too.
 * Threads that follow the poller sleep on the generation itself, and arm by
 * saying so; they look at the poller's role after that.
 * tests/core/wake_model.py tries all orders of these steps. */
#ifndef PSCOMPY_CORE_SLEEP_H
#define PSCOMPY_CORE_SLEEP_H

#include <stdatomic.h>

#include "../api.h"
#include "pscompy/transport/kit/list.h"

/* Why a bell is rung. */
#define PSC_WAKE_SPENT 1u /* what was armed is used up, or does not suffice */
#define PSC_WAKE_NEWS 2u  /* a request, the completions or the messages have
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

/* ---- with the lock held ---- */

/* Returns -1 with errno; psc_sleeper_close unlinks it in either case. */
int psc_sleeper_open(psc_sleeper_t *sleeper, psc_worker_t *worker);
void psc_sleeper_close(psc_sleeper_t *sleeper);
/* The owner looks now, or will before it sleeps. */
void psc_sleeper_look(psc_sleeper_t *sleeper);
/* PSC_ERR_NO_RESOURCE: there is something. What others have armed may be used
 * up then. */
psc_status_t psc_sleeper_try(psc_sleeper_t *sleeper, uint32_t wants);
/* The owner is awake. */
void psc_sleeper_disarm(psc_sleeper_t *sleeper);
/* Ring those that want one of these. */
void psc_wake_sleepers(psc_worker_t *worker, uint32_t reasons);
/* Sleepers have armed, and that is used up: arm for them, or ring them. */
void psc_sleepers_settle(psc_worker_t *worker);
/* Add a descriptor to the sets of all sleepers; -1 with errno. */
int psc_sleepers_watch(psc_worker_t *worker, int fd, uint32_t ifaces);
/* Free those that were released. */
void psc_sleepers_bury(psc_worker_t *worker);
/* The poller's and the control thread's, as the worker begins: 0, or -1 with
 * errno; and the end of all. */
int psc_sleepers_open(psc_worker_t *worker);
void psc_sleepers_close(psc_worker_t *worker);

#endif
