/* The message of a receive that nobody waits for any more goes back to the
 * queue. */
#pragma once

#include "op.h"

/* True if the op is a completed receive that holds a message. */
bool psb_op_has_message(const psb_op_t *op);
/* Returns the message of a completed receive to the queue; its result is
 * Cancelled then. Does nothing if there is no message. */
void psb_op_return(psb_op_t *op);
