/* Methods of Connection: put, get, _offer, _fetch, am_send. */
#pragma once

#include "connection.h"

PyObject *psb_connection_put(psb_connection_t *self, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_connection_get(psb_connection_t *self, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_connection_offer(psb_connection_t *self, PyObject *buffers);
PyObject *psb_connection_fetch(psb_connection_t *self, PyObject *const *args,
                               Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_connection_am_send(psb_connection_t *self, PyObject *const *args,
                                 Py_ssize_t n_args, PyObject *kwnames);
