/* Delivers to Python what the core has completed. */
#pragma once

#include "worker.h"

/* Runs psb_worker_drain() if something has completed. Returns 0 if the worker
 * is open, else -1 with an exception, which origin._exception() makes unless
 * `origin` is NULL. */
int psb_worker_enter(psb_worker_t *self, PyObject *origin);
/* Runs the call-backs of completed requests, and the handlers of active
 * messages that have arrived. */
void psb_worker_drain(psb_worker_t *self);
