/* Hands an operation to the core. */
#pragma once

#include "op.h"

/* Returns 0 if the core took the operation: op->done says whether it has
 * completed already. Returns -1 with an exception. */
int psb_op_start(psb_op_t *op, psb_call_t *call, uint32_t flags, void *owner);
/* Number of polls to make before the GIL is released; enough for a short round
 * trip. */
unsigned psb_op_polls(const psb_op_t *op);
