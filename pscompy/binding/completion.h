/* Delivers what the core has completed to Python. */
#pragma once

#include "worker.h"

/* Delivers what has completed meanwhile. Returns 0 if the worker is open, else
 * -1 with an exception, which `origin` makes unless it is NULL. */
int psb_worker_enter(psb_worker_t *self, PyObject *origin);
/* Delivers completed requests to their call-backs, and active messages to
 * their handlers. */
void psb_worker_drain(psb_worker_t *self);
