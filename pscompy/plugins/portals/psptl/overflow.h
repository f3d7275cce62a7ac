/* Buffers for messages without a receive, in the overflow list of the tag
 * entry. A channel has as many as its peer may have messages in flight, so
 * there is always one; with fewer (PSP_PORTALS_OVERFLOW_SIZE) the interface
 * disables the table entry when none is left. */
#ifndef PSCOMPY_PORTALS_OVERFLOW_H
#define PSCOMPY_PORTALS_OVERFLOW_H

#include "driver.h"

/* Allocates and posts the buffers of a channel. Returns false if memory or
 * entries are short. */
bool psptl_overflow_open(psptl_channel_t *channel);
/* As for the receive ring; see receive.h. */
void psptl_overflow_unlink(psptl_channel_t *channel);
bool psptl_overflow_back(psptl_channel_t *channel);
void psptl_overflow_free(psptl_channel_t *channel);
/* Posts a buffer again whose message is not needed any more. */
void psptl_overflow_again(psptl_buffer_t *buffer);
/* The buffer that contains this address. Returns NULL if it is none of the
 * channel's. */
psptl_buffer_t *psptl_overflow_at(const psptl_channel_t *channel,
                                  const void *start);

#endif
