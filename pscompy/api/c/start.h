/* Hands an operation to the core. */
#pragma once

#include "op.h"

/* Hands the op to the core. Returns 0 if the core took the op; op->done then
 * says whether the operation has completed already. Otherwise returns -1 with
 * an exception. */
int psb_op_start(psb_op_t *op, psb_call_t *call, uint32_t flags, void *owner);
/* Returns the number of polls to make before the GIL is released; they are
 * enough for a short round trip. */
unsigned psb_op_polls(const psb_op_t *op);
