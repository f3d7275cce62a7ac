/* The type Sleeper. */
#ifndef PSCOMPY_BINDING_SLEEPER_H
#define PSCOMPY_BINDING_SLEEPER_H

#include "worker.h"

extern PyType_Spec psb_sleeper_spec;
PyObject *psb_sleeper_create(psb_worker_t *worker); /* of an open worker */

#endif
