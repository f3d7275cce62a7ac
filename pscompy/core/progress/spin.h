/* Spinning: how long it pays to poll before sleeping. */
#ifndef PSCOMPY_CORE_SPIN_H
#define PSCOMPY_CORE_SPIN_H

#include "../types/worker.h"

/* One stretch of polling. */
typedef struct psc_spin {
    int64_t until;    /* 0: the clock was not looked at yet */
    int64_t deadline; /* of the wait */
    unsigned passes;  /* until the next look at the clock */
    uint64_t away;    /* cycles that offers of the processor took */
    unsigned taken;   /* offers that somebody took */
} psc_spin_t;

void psc_spin_begin(psc_worker_t *worker, psc_spin_t *spin, int64_t deadline);
/* After a pass that found nothing. False: rather sleep. */
bool psc_spin_on(psc_worker_t *worker, psc_spin_t *spin);
/* How many passes to make with the GIL, which keeps others from running. */
unsigned psc_spin_limit(psc_worker_t *worker, unsigned passes);

#endif
