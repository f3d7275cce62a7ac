/* Methods that end a Worker. */
#ifndef PSCOMPY_BINDING_WORKER_END_H
#define PSCOMPY_BINDING_WORKER_END_H

#include "worker.h"

PyObject *psb_worker_close(psb_worker_t *self, PyObject *destroy);
PyObject *psb_worker_forked(psb_worker_t *self, PyObject *unused);

#endif
