/* Posting the buffers for messages without a receive. */
#include "overflow.h"

#include <stdlib.h>

#include "failure.h"
#include "receive.h"

static bool overflow_post(psptl_buffer_t *buffer)
{
    psptl_channel_t *channel = buffer->channel;
    psptl_device_t *device = channel->device;
    ptl_me_t me =
        psptl_me_once(channel, buffer->bytes, device->settings.buffer_size,
                      psptl_source_bits(channel->matching.source));

    me.ignore_bits = ~PSPTL_SOURCE_MASK;
    buffer->op.unlinked = false;
    buffer->posted = device->ni->PtlMEAppend(
                         device->handle, device->tag.pt, &me, PTL_OVERFLOW_LIST,
                         &buffer->op, &buffer->me) == PTL_OK;
    return buffer->posted;
}

bool psptl_overflow_open(psptl_channel_t *channel)
{
    const psptl_settings_t *settings = &channel->device->settings;
    psptl_buffer_t *buffers = calloc(settings->overflows, sizeof(*buffers));
    uint8_t *bytes = malloc(settings->overflows * settings->buffer_size);

    channel->matching.overflows = buffers;
    channel->matching.overflow_bytes = bytes;
    if (!buffers || !bytes)
        return false;
    for (uint32_t i = 0; i < settings->overflows; i++)
        buffers[i] = (psptl_buffer_t){
            .op = {.kind = PSPTL_OVERFLOW},
            .channel = channel,
            .bytes = bytes + i * settings->buffer_size,
        };
    for (uint32_t i = 0; i < settings->overflows; i++) {
        if (!overflow_post(&buffers[i]))
            return false;
    }
    return true;
}

static uint32_t overflow_count(const psptl_channel_t *channel)
{
    return channel->matching.overflows ? channel->device->settings.overflows
                                       : 0;
}

void psptl_overflow_unlink(psptl_channel_t *channel)
{
    for (uint32_t i = 0; i < overflow_count(channel); i++)
        psptl_buffer_unlink(&channel->matching.overflows[i]);
}

bool psptl_overflow_back(psptl_channel_t *channel)
{
    bool all = true;

    for (uint32_t i = 0; i < overflow_count(channel); i++)
        all &= psptl_buffer_back(&channel->matching.overflows[i]);
    return all;
}

void psptl_overflow_free(psptl_channel_t *channel)
{
    free(channel->matching.overflows);
    free(channel->matching.overflow_bytes);
}

void psptl_overflow_again(psptl_buffer_t *buffer)
{
    psptl_channel_t *channel = buffer->channel;

    if (!channel->owner || overflow_post(buffer))
        return;
    psptl_channel_fail(channel, PSPTL_BROKEN,
                       "the interface takes no entry for messages without "
                       "receive (PSP_PORTALS_RECVQ_SIZE)");
}

psptl_buffer_t *psptl_overflow_at(const psptl_channel_t *channel,
                                  const void *start)
{
    size_t size = channel->device->settings.buffer_size;
    uintptr_t at =
        (uintptr_t)start - (uintptr_t)channel->matching.overflow_bytes;

    if (at / size >= channel->device->settings.overflows)
        return NULL;
    return &channel->matching.overflows[at / size];
}
