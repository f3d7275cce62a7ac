/* The type Sleeper. */
#pragma once

#include "worker.h"

extern PyType_Spec psb_sleeper_spec;
PyObject *psb_sleeper_create(psb_worker_t *worker); /* of an open worker */
