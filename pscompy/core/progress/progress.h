/* Progress: one pass over the interfaces and the queued work. */
#pragma once

#include "../types/worker.h"

/* Values for the argument `ifaces` of the functions below. PSC_PASS_DUE: poll
 * the interfaces whose turn it is in this pass (psc_iface_slot_t.every).
 * PSC_PASS_ALL: poll every interface. */
#define PSC_PASS_DUE ((psc_ifaces_t){0})
#define PSC_PASS_ALL ((psc_ifaces_t){UINT32_MAX})

/* With the lock held: poll these interfaces once. A pass disarms all
 * sleepers (sleep.h). psc_worker_progress_locked therefore calls psc_settle;
 * after psc_worker_pass the caller must poll again, arm, or call psc_settle. */
unsigned psc_worker_pass(psc_worker_t *worker, psc_ifaces_t ifaces);
unsigned psc_worker_progress_locked(psc_worker_t *worker, psc_ifaces_t ifaces);
