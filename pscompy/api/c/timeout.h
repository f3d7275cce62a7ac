/* Raises the Timeout of an operation, and describes an operation in words. */
#pragma once

#include "op.h"

/* Returns a text that describes the operation, such as "receive from 1 with tag
 * 3": a new reference, or NULL. */
PyObject *psb_op_operation(const psb_op_t *op);
/* Raises the Timeout of `op` after `timeout` seconds. `request` is the Request
 * if it is still in flight, else NULL. It becomes the attribute `request` of
 * the Timeout (None for NULL). Always returns NULL. */
PyObject *psb_raise_timeout(const psb_op_t *op, PyObject *timeout,
                            PyObject *request);
