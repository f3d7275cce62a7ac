/* Methods of Connection that send and receive objects. */
#pragma once

#include "connection.h"

/* Runs the method _set_objects(objects, heads, pickles) of Connection, which
 * sets the fields of the same names in psb_connection_t. */
int psb_object_bind(psb_connection_t *self, PyObject *const *args,
                    Py_ssize_t n_args);
PyObject *psb_object_send(psb_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_object_recv(psb_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames);
