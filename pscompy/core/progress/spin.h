/* Spinning: how long it pays to poll before sleeping. */
#ifndef PSCOMPY_CORE_PROGRESS_SPIN_H
#define PSCOMPY_CORE_PROGRESS_SPIN_H

#include "../types/worker.h"

/* State of one stretch of polling. */
typedef struct psc_spin {
    int64_t until;    /* 0: the clock has not been read yet */
    int64_t deadline; /* when the wait times out */
    unsigned passes;  /* left until the next clock read */
    uint64_t away;    /* cycles spent in offers of the processor */
    unsigned taken;   /* offers that another thread took */
} psc_spin_t;

/* A peer is expected to copy for this long from now, and to report the end:
 * sleeping meanwhile, to be woken soon, would cost more than it saves. */
void psc_spin_expect(psc_worker_t *worker, double ns);
void psc_spin_begin(psc_worker_t *worker, psc_spin_t *spin, int64_t deadline);
/* Call after a pass that found nothing. Returns false if it is time to
 * sleep. */
bool psc_spin_on(psc_worker_t *worker, psc_spin_t *spin);
/* How many of these passes to make with the GIL held, which keeps other Python
 * threads from running. */
unsigned psc_spin_limit(psc_worker_t *worker, unsigned passes);

#endif
