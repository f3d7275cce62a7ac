/* Gives the message of a receive that no thread waits for any more back to the
 * queue of arrived messages. */
#pragma once

#include "op.h"

/* Returns true if the op is a completed receive that holds a message. */
bool psb_op_has_message(const psb_op_t *op);
/* Returns the message of a completed receive to the queue of arrived messages;
 * the result of the receive is Cancelled then. Does nothing if the op has no
 * message. */
void psb_op_return(psb_op_t *op);
