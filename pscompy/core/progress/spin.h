/* Spinning: how long it pays to poll before sleeping. */
#pragma once

#include "../types/worker.h"

/* The state of one thread's polling, from psc_spin_begin until it sleeps. */
typedef struct psc_spin {
    /* when to stop spinning; 0: the clock has not been read yet */
    int64_t until;
    int64_t deadline; /* time at which the wait times out */
    unsigned passes;  /* passes left until the next clock read */
    uint64_t away;    /* cycles spent in sched_yield */
    /* number of calls of sched_yield in which another thread ran */
    unsigned taken;
} psc_spin_t;

/* Let waiting threads spin for `ns` nanoseconds from now, because a peer is
 * expected to copy for so long and to report the end: sleeping meanwhile, to be
 * woken soon, would cost more than it saves. */
void psc_spin_expect(psc_worker_t *worker, double ns);
void psc_spin_begin(psc_worker_t *worker, psc_spin_t *spin, int64_t deadline);
/* Call after a pass of polling that found nothing. Returns false if it is time
 * to sleep. */
bool psc_spin_on(psc_worker_t *worker, psc_spin_t *spin);
/* Returns how many of `passes` passes to make for a request with the GIL held,
 * which keeps other Python threads from running. */
unsigned psc_spin_limit(psc_worker_t *worker, unsigned passes);
/* Returns true if a receive that has made `passes` passes in a row with the GIL
 * held is to make another. */
bool psc_spin_held(psc_worker_t *worker, unsigned passes);
/* Call after `passes` passes with the GIL held; found: whether they have found
 * the awaited event. */
void psc_spin_held_end(psc_worker_t *worker, unsigned passes, bool found);
