/* The sleeper functions of psc_api_t; control.h declares those of the control
 * thread. Each function takes the lock. */
#pragma once

#include "../types/worker.h"

psc_status_t psc_sleeper_create(psc_worker_t *worker,
                                psc_sleeper_t **sleeper_p);
void psc_sleeper_release(psc_worker_t *worker, psc_sleeper_t *sleeper);
int psc_sleeper_descriptor(const psc_sleeper_t *sleeper);
psc_status_t psc_sleeper_arm(psc_sleeper_t *sleeper);
unsigned psc_sleeper_progress(psc_sleeper_t *sleeper);
psc_status_t psc_sleeper_wait(psc_sleeper_t *sleeper, psc_request_t *request,
                              int64_t timeout_ns);
psc_status_t psc_worker_arm(psc_worker_t *worker);
