/* How often each interface is polled. */
#ifndef PSCOMPY_CORE_PACE_H
#define PSCOMPY_CORE_PACE_H

#include "../types/worker.h"

/* Decide which interfaces each pass polls, and how many passes are made between
 * two looks at the clock. Called after a lane came or went. */
void psc_worker_pace(psc_worker_t *worker);

#endif
