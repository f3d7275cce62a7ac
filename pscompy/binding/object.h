/* Methods of Connection that send and receive objects. */
#pragma once

#include "connection.h"

/* The method _set_objects(objects, heads, pickles). */
int psb_object_bind(psb_connection_t *self, PyObject *const *args,
                    Py_ssize_t n_args);
PyObject *psb_object_send(psb_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_object_recv(psb_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames);
