/* Converts the result of a completed operation to Python. */
#pragma once

#include "op.h"

/* Returns what a blocking call returns for this op, or NULL with its error. For
 * a PSB_MATCH see psb_message_new() instead. */
PyObject *psb_op_value(psb_op_t *op);
/* Returns the Status of the message that was received. */
PyObject *psb_op_status(psb_op_t *op);
