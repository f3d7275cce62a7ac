/* The type Message: a message that a matched probe has taken off the queue. */
#pragma once

#include "op.h"

extern PyType_Spec psb_message_spec;
/* Takes over the matched receive of op, a PSB_MATCH. */
PyObject *psb_message_new(psb_op_t *op);
