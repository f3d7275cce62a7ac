/* The type Message: a message that a matched probe has taken off the queue of
 * arrived messages, and that is still to be received. */
#pragma once

#include "op.h"

extern PyType_Spec psb_message_spec;
/* Returns a Message that takes over the matched receive op->core. `op` is of
 * kind PSB_MATCH. */
PyObject *psb_message_new(psb_op_t *op);
