/* The Python result of a completed operation. */
#pragma once

#include "op.h"

/* Returns the blocking call's result, or NULL with its error. For PSB_MATCH
 * see message.h. */
PyObject *psb_op_value(psb_op_t *op);
/* Returns the Status of the message that was received. */
PyObject *psb_op_status(psb_op_t *op);
