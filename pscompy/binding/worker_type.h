/* The type Worker. */
#ifndef PSCOMPY_BINDING_WORKER_TYPE_H
#define PSCOMPY_BINDING_WORKER_TYPE_H

#include "state.h"

extern PyType_Spec psb_worker_spec;

#endif
