/* The Timeout of an operation, and the operation in words. */
#pragma once

#include "op.h"

/* Returns the operation in words, such as "receive from 1 with tag 3": a new
 * reference, or NULL. */
PyObject *psb_op_operation(const psb_op_t *op);
/* Raises the Timeout of `op` after `timeout` seconds. Its .request is
 * `request`: the Request still in flight, or NULL if there is none. Always
 * returns NULL. */
PyObject *psb_raise_timeout(const psb_op_t *op, PyObject *timeout,
                            PyObject *request);
