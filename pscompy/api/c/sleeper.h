/* The type Sleeper: a descriptor that one thread sleeps on. */
#pragma once

#include "worker.h"

extern PyType_Spec psb_sleeper_spec;
/* Creates a Sleeper of a worker that is open. */
PyObject *psb_sleeper_create(psb_worker_t *worker);
