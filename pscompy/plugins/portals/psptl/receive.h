/* Buffers for messages, as list entries of the interface: those of the receive
 * ring, and overflow buffers, for messages without a receive, in the overflow
 * list of the portal table entry `tag`. By default a channel has as many
 * overflow buffers as its peer may have messages in flight, so that one is
 * always free. If PSP_PORTALS_OVERFLOW_SIZE sets a smaller number, the
 * interface disables the portal table entry when no buffer is left. */
#pragma once

#include "driver.h"

/* Allocates n * size bytes, aligned for the interface. Returns NULL if memory
 * is short. */
void *psptl_ring_bytes(size_t n, size_t size);
/* Allocates n buffers of this kind: PSPTL_BUFFER (receive ring) or
 * PSPTL_OVERFLOW. Returns false if memory is short. */
bool psptl_buffers_make(psptl_channel_t *channel, psptl_buffers_t *buffers,
                        psptl_kind_t kind, uint32_t n);
/* Posts all buffers to the interface. Returns false if the interface does not
 * take a list entry for each. */
bool psptl_buffers_post(psptl_buffers_t *buffers);
/* Unlinks the list entries of the buffers. The caller calls psptl_backlog_fetch
 * before and after. */
void psptl_buffers_unlink(psptl_buffers_t *buffers);
/* To be called after psptl_buffers_unlink and a psptl_backlog_fetch. Returns
 * true if the interface has given back all buffers. */
bool psptl_buffers_back(psptl_buffers_t *buffers);
void psptl_buffers_free(psptl_buffers_t *buffers);
/* Returns the buffer that contains the address `start`; NULL if none does. */
psptl_buffer_t *psptl_buffers_at(const psptl_buffers_t *buffers, size_t size,
                                 const void *start);
/* Posts a buffer again, because its message is not needed any more. */
void psptl_buffer_again(psptl_buffer_t *buffer);
