/* Messages that the interface found no receive for. Each channel has as many
 * overflow buffers as its peer may have messages under way, so there is always
 * one; or fewer, and when none is left the interface closes the table entry.
 * What came before its turn must not keep such a buffer then, since the message
 * that it waits for may need it: it waits in memory of its own.
 *
 * A message is searched out of the overflow list as soon as its event comes, by
 * its exact bits, and handed up. A receive that is posted before that finds it
 * there. From the search until it is handed up it is in no list; as long as
 * there is one of these, a channel takes no receive, which might miss it. */
#include <stdlib.h>

#include "driver.h"

static bool overflow_post(psptl_buffer_t *buffer)
{
    psptl_channel_t *channel = buffer->channel;
    psptl_device_t *device = channel->device;
    ptl_me_t me =
        psptl_me_once(channel, buffer->bytes, device->settings.buffer_size,
                      psptl_source_bits(channel->source));

    me.ignore_bits = ~PSPTL_SOURCE_MASK;
    buffer->op.unlinked = false;
    buffer->posted = device->ni->PtlMEAppend(
                         device->handle, device->tag.pt, &me,
                         PTL_OVERFLOW_LIST, &buffer->op, &buffer->me) ==
                     PTL_OK;
    return buffer->posted;
}

bool psptl_overflow_open(psptl_channel_t *channel)
{
    const psptl_settings_t *settings = &channel->device->settings;

    channel->overflows =
        calloc(settings->overflows, sizeof(*channel->overflows));
    channel->overflow_bytes =
        malloc(settings->overflows * settings->buffer_size);
    if (!channel->overflows || !channel->overflow_bytes)
        return false;
    for (uint32_t i = 0; i < settings->overflows; i++)
        channel->overflows[i] = (psptl_buffer_t){
            .op = {.kind = PSPTL_OVERFLOW},
            .channel = channel,
            .bytes = channel->overflow_bytes + i * settings->buffer_size,
        };
    for (uint32_t i = 0; i < settings->overflows; i++) {
        if (!overflow_post(&channel->overflows[i]))
            return false;
    }
    return true;
}

static uint32_t overflow_count(const psptl_channel_t *channel)
{
    return channel->overflows ? channel->device->settings.overflows : 0;
}

void psptl_overflow_unlink(psptl_channel_t *channel)
{
    for (uint32_t i = 0; i < overflow_count(channel); i++)
        psptl_buffer_unlink(&channel->overflows[i]);
}

bool psptl_overflow_back(psptl_channel_t *channel)
{
    bool all = true;

    for (uint32_t i = 0; i < overflow_count(channel); i++)
        all &= psptl_buffer_back(&channel->overflows[i]);
    return all;
}

void psptl_overflow_free(psptl_channel_t *channel)
{
    free(channel->overflows);
    free(channel->overflow_bytes);
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
    uintptr_t at = (uintptr_t)start - (uintptr_t)channel->overflow_bytes;

    if (at / size >= channel->device->settings.overflows)
        return NULL;
    return &channel->overflows[at / size];
}

/* ---- out of the list, and up ---- */

static void overflow_search(psptl_channel_t *channel, const ptl_event_t *event)
{
    psptl_device_t *device = channel->device;
    ptl_me_t me = psptl_me_once(channel, NULL, 0, event->match_bits);

    channel->n_between++;
    if (device->ni->PtlMESearch(device->handle, device->tag.pt, &me,
                                PTL_SEARCH_DELETE,
                                &channel->search) == PTL_OK)
        channel->n_searching++;
    else
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "the interface does not search "
                           "(PSP_PORTALS_MATCHING)");
}

/* One search follows each message, whatever happens: it finds that one, or an
 * earlier one with the same bits, or nothing, if a receive came before. Of a
 * channel that was destroyed the interface forgets the message by it. */
void psptl_overflow_event(psptl_buffer_t *buffer, const ptl_event_t *event)
{
    buffer->posted = false;
    if (event->ni_fail_type != PTL_NI_OK)
        psptl_overflow_again(buffer);
    else
        overflow_search(buffer->channel, event);
}

static bool overflow_scarce(const psptl_channel_t *channel, uint32_t number)
{
    const psptl_settings_t *settings = &channel->device->settings;

    return settings->overflows < settings->recvq &&
           number != channel->window.expected;
}

void psptl_overflow_found(psptl_channel_t *channel, const ptl_event_t *event)
{
    psptl_buffer_t *buffer;
    psptl_tagged_t message;

    channel->n_searching--;
    if (event->ni_fail_type != PTL_NI_OK) {
        channel->n_between--;
        return;
    }
    buffer = psptl_overflow_at(channel, event->start);
    message = psptl_tag_message(event, true);
    if (!buffer || (event->mlength < event->rlength && !message.missed)) {
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "a message of %llu bytes for a buffer of %zu",
                           (unsigned long long)event->rlength,
                           channel->device->settings.buffer_size);
        return;
    }
    buffer->message = message;
    buffer->message.bytes = buffer->bytes;
    buffer->len = event->mlength;
    if (!channel->owner)
        return;
    if (overflow_scarce(channel, (uint32_t)event->hdr_data))
        buffer = psptl_hold_buffer(buffer);
    if (buffer)
        psptl_tag_arrive(channel, &buffer->op, event);
}

static void overflow_hand_up(const psptl_buffer_t *buffer)
{
    psptl_channel_t *channel = buffer->channel;
    psptl_device_t *device = channel->device;
    psptl_tag_t *tag = psptl_hold_find(channel, buffer->message.bits);
    size_t wanted = buffer->message.len;

    if (tag && tag->receive.len < wanted)
        wanted = tag->receive.len;
    if (buffer->len < wanted && !buffer->message.missed) {
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "a message was dropped, and a later one cut "
                           "meanwhile (PSP_PORTALS_MATCHING)");
    } else if (tag) {
        psptl_tag_get(tag, buffer);
    } else {
        psptl_count(channel, PSPTL_COUNTER_tag_overflows);
        device->owner->tagged(channel->owner, NULL, &buffer->message,
                              PSPTL_OK);
    }
}

void psptl_overflow_deliver(psptl_buffer_t *buffer)
{
    buffer->channel->n_between--;
    overflow_hand_up(buffer);
    if (buffer->aside)
        free(buffer);
    else
        psptl_overflow_again(buffer);
}
