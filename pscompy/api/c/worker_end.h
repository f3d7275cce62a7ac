/* Methods of Worker that end the worker. */
#pragma once

#include "worker.h"

PyObject *psb_worker_close(psb_worker_t *self, PyObject *destroy);
PyObject *psb_worker_forked(psb_worker_t *self, PyObject *unused);
