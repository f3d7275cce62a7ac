/* Methods of Request that withdraw the request. */
#pragma once

#include "request_life.h"

PyObject *psb_request_cancel(psb_request_t *self, PyObject *unused);
PyObject *psb_request_requeue(psb_request_t *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_request_revoke(psb_request_t *self, PyObject *unused);
