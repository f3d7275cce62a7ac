/* How often each interface is polled. */
#ifndef PSCOMPY_CORE_PACE_H
#define PSCOMPY_CORE_PACE_H

#include "../types/worker.h"

/* Decide how often each interface is polled, and how many passes are made
 * between two clock reads. Called after a lane was added or removed. */
void psc_worker_pace(psc_worker_t *worker);

#endif
