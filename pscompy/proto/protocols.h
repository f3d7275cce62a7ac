/* All protocols (eager, rendezvous and so on) as one table of functions, which
 * psc_worker_create registers with the core, and the functions that begin and
 * end their state in a worker. */
#pragma once

#include "../core/upward.h"

extern const psc_upward_t psc_protocols;
/* Initialize the protocols' state of a worker whose configuration is known. */
void psc_protocols_init(psc_worker_t *worker);
/* The worker ends: call psc_protocols_stop before its connections are freed,
 * psc_protocols_destroy afterwards. */
void psc_protocols_stop(psc_worker_t *worker);
void psc_protocols_destroy(psc_worker_t *worker);
