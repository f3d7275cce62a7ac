/* Messages, handed to the owner in the order of their numbers. */
#pragma once

#include "driver.h"

/* Puts the message of an operation into the channel's window; `op` is of the
 * kind BUFFER, TAG or OVERFLOW. All messages whose turn it is are delivered.
 * Returns false if the number was used before, or if it is too far ahead; the
 * channel has failed in the latter case. */
bool psptl_deliver_in_order(psptl_channel_t *channel, psptl_op_t *op,
                            uint32_t number);
/* Delivers messages that arrived before their peer was known, or that had to
 * wait for receives to be withdrawn. */
void psptl_deliver_pending(psptl_device_t *device);
/* A message has arrived in a buffer of the receive ring. */
void psptl_buffer_event(psptl_buffer_t *buffer, const ptl_event_t *event);
/* Reports the receives that are lost. Returns their number. */
unsigned psptl_deliver_lost(psptl_device_t *device);
