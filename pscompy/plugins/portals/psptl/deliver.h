/* Delivers messages to the owner of their channel, in the order of their
 * numbers. */
#pragma once

#include "driver.h"

/* Puts the message of an operation into the channel's reorder window; `op` is
 * of the kind PSPTL_BUFFER, PSPTL_TAG or PSPTL_OVERFLOW. Then delivers all
 * messages whose predecessors were delivered. Returns false if the number was
 * used before, or if it is too far ahead; the channel has failed in the latter
 * case. */
bool psptl_deliver_in_order(psptl_channel_t *channel, psptl_op_t *op,
                            uint32_t number);
/* Delivers messages that arrived before their peer was known, or that had to
 * wait until receives were withdrawn from the interface. */
void psptl_deliver_pending(psptl_device_t *device);
/* Handles the event of a message that has arrived in a buffer of the receive
 * ring. */
void psptl_buffer_event(psptl_buffer_t *buffer, const ptl_event_t *event);
/* Reports the receives in `lost_tags` to their owners as lost. Returns their
 * number. */
unsigned psptl_deliver_lost(psptl_device_t *device);
