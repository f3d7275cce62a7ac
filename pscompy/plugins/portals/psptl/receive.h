/* Buffers for messages, as entries of the interface: those of the receive ring,
 * and those for messages without a receive, in the overflow list of the tag
 * entry. A channel has as many overflow buffers as its peer may have messages
 * in flight, so one is always free; with fewer (PSP_PORTALS_OVERFLOW_SIZE) the
 * interface disables the table entry when none is left. */
#pragma once

#include "driver.h"

/* Returns n * size bytes, aligned for the interface, or NULL. */
void *psptl_ring_bytes(size_t n, size_t size);
/* Allocates n buffers of this kind. Returns false if memory is short. */
bool psptl_buffers_make(psptl_channel_t *channel, psptl_buffers_t *buffers,
                        psptl_kind_t kind, uint32_t n);
/* Returns false if the interface does not take all entries. */
bool psptl_buffers_post(psptl_buffers_t *buffers);
/* Unlinks the entries, between two fetches of the backlog. */
void psptl_buffers_unlink(psptl_buffers_t *buffers);
/* After the second fetch: returns true if no buffer is the interface's any
 * more. */
bool psptl_buffers_back(psptl_buffers_t *buffers);
void psptl_buffers_free(psptl_buffers_t *buffers);
/* The buffer that contains this address. Returns NULL if there is none. */
psptl_buffer_t *psptl_buffers_at(const psptl_buffers_t *buffers, size_t size,
                                 const void *start);
/* Posts a buffer again whose message is not needed any more. */
void psptl_buffer_again(psptl_buffer_t *buffer);
