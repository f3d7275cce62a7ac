/* Posting buffers for messages to the interface, and unlinking them. */
#include "match.h"

#include <stdlib.h>

#include "channel.h"

void *psptl_ring_bytes(size_t n, size_t size)
{
    return aligned_alloc(64, (n * size + 63) & ~(size_t)63);
}

bool psptl_buffers_make(psptl_channel_t *channel, psptl_buffers_t *buffers,
                        psptl_kind_t kind, uint32_t n)
{
    size_t size = channel->device->settings.buffer_size;

    buffers->ring = calloc(n, sizeof(*buffers->ring));
    buffers->bytes = psptl_ring_bytes(n, size);
    if (!buffers->ring || !buffers->bytes)
        return false;
    buffers->n = n;
    for (uint32_t i = 0; i < n; i++)
        buffers->ring[i] = (psptl_buffer_t){
            .op = {.kind = kind},
            .channel = channel,
            .bytes = buffers->bytes + i * size,
        };
    return true;
}

static bool receive_post(psptl_buffer_t *buffer)
{
    psptl_channel_t *channel = buffer->channel;
    psptl_device_t *device = channel->device;
    bool overflow = buffer->op.kind == PSPTL_OVERFLOW;
    ptl_me_t me = psptl_me_once(
        channel, buffer->bytes, device->settings.buffer_size,
        overflow ? psptl_source_bits(channel->matching.source) : channel->bits);

    if (overflow)
        me.ignore_bits = ~PSPTL_SOURCE_MASK;
    buffer->op.unlinked = false;
    buffer->posted =
        device->ni->PtlMEAppend(
            device->handle, overflow ? device->tag.pt : device->eager.pt, &me,
            overflow ? PTL_OVERFLOW_LIST : PTL_PRIORITY_LIST, &buffer->op,
            &buffer->me) == PTL_OK;
    return buffer->posted;
}

bool psptl_buffers_post(psptl_buffers_t *buffers)
{
    for (uint32_t i = 0; i < buffers->n; i++) {
        if (!receive_post(&buffers->ring[i]))
            return false;
    }
    return true;
}

void psptl_buffers_unlink(psptl_buffers_t *buffers)
{
    for (uint32_t i = 0; i < buffers->n; i++) {
        psptl_buffer_t *buffer = &buffers->ring[i];

        if (buffer->posted)
            psptl_op_unlink(buffer->channel->device, &buffer->op, buffer->me,
                            1);
    }
}

bool psptl_buffers_back(psptl_buffers_t *buffers)
{
    bool all = true;

    for (uint32_t i = 0; i < buffers->n; i++) {
        psptl_buffer_t *buffer = &buffers->ring[i];

        if (psptl_op_back(&buffer->op))
            buffer->posted = false;
        all &= !buffer->posted;
    }
    return all;
}

void psptl_buffers_free(psptl_buffers_t *buffers)
{
    free(buffers->ring);
    free(buffers->bytes);
}

psptl_buffer_t *psptl_buffers_at(const psptl_buffers_t *buffers, size_t size,
                                 const void *start)
{
    uintptr_t at = (uintptr_t)start - (uintptr_t)buffers->bytes;

    return at / size < buffers->n ? &buffers->ring[at / size] : NULL;
}

void psptl_buffer_again(psptl_buffer_t *buffer)
{
    psptl_channel_t *channel = buffer->channel;

    if (channel->owner && !receive_post(buffer))
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "the interface takes no entry for a buffer "
                           "(PSP_PORTALS_RECVQ_SIZE)");
}
