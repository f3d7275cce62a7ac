/* Puts the messages of a channel into the order of their numbers, and calls the
 * channel's owner. */
#include "match.h"

#include <stdlib.h>

#include "channel.h"

/* ---- messages of the receive ring ---- */

static bool deliver_same(const ptl_process_t *a, const ptl_process_t *b)
{
    return a->phys.nid == b->phys.nid && a->phys.pid == b->phys.pid;
}

/* Hands a message to the owner, or rejects it if its initiator is not the peer:
 * before the peer was known, the buffer's list entry accepted messages of all
 * processes (psptl_me_once). */
static void deliver_buffer(psptl_channel_t *channel, psptl_buffer_t *buffer)
{
    if (!deliver_same(&buffer->initiator, &channel->peer_id)) {
        psptl_buffer_again(buffer);
        return;
    }
    if (buffer->word) {
        psptl_withhold_word(channel, buffer->word);
    } else {
        psptl_count(channel, PSPTL_COUNTER_arrived);
        channel->device->owner->arrived(channel->owner, buffer->bytes,
                                        buffer->len);
    }
    psptl_buffer_again(buffer);
}

/* ---- messages that the interface matches ---- */

static void deliver_tag(psptl_tag_t *tag, psptl_verdict_t verdict)
{
    psptl_channel_t *channel = tag->channel;
    psptl_device_t *device = channel->device;
    psptl_tagged_t message = tag->message;
    void *cookie = tag->receive.cookie;

    psptl_tag_give(tag);
    psptl_count_many(channel, PSPTL_COUNTER_tag_matched, verdict == PSPTL_OK);
    if (channel->owner)
        device->owner->tagged(channel->owner, cookie, &message, verdict);
}

/* Delivers a message in a buffer to a held receive, one that was withheld from
 * the interface. */
static void deliver_held(psptl_tag_t *tag, const psptl_buffer_t *buffer)
{
    size_t len = buffer->message.len < tag->receive.len ? buffer->message.len
                                                        : tag->receive.len;

    tag->message = buffer->message;
    if (!tag->message.missed)
        psptl_tag_copy(tag, buffer->bytes, len);
    psptl_count(tag->channel, PSPTL_COUNTER_tag_kept);
    deliver_tag(tag, PSPTL_OK);
}

static void deliver_unexpected(const psptl_buffer_t *buffer)
{
    psptl_channel_t *channel = buffer->channel;
    psptl_device_t *device = channel->device;
    psptl_tag_t *tag = psptl_withhold_find(channel, buffer->message.bits);
    size_t wanted = buffer->message.len;

    if (tag && tag->receive.len < wanted)
        wanted = tag->receive.len;
    if (buffer->len < wanted && !buffer->message.missed) {
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "a message was dropped, and a later one cut "
                           "meanwhile (PSP_PORTALS_MATCHING)");
    } else if (tag) {
        deliver_held(tag, buffer);
    } else {
        psptl_count(channel, PSPTL_COUNTER_tag_overflows);
        device->owner->tagged(channel->owner, NULL, &buffer->message, PSPTL_OK);
    }
}

static void deliver_overflow(psptl_buffer_t *buffer)
{
    buffer->channel->matching.n_between--;
    deliver_unexpected(buffer);
    if (buffer->aside)
        free(buffer);
    else
        psptl_buffer_again(buffer);
}

/* ---- delivering in order ---- */

static void deliver_op(psptl_channel_t *channel, psptl_op_t *op)
{
    channel->device->n_delivered++;
    if (op->kind == PSPTL_BUFFER)
        deliver_buffer(channel, psc_container_of(op, psptl_buffer_t, op));
    else if (op->kind == PSPTL_TAG)
        deliver_tag(psc_container_of(op, psptl_tag_t, op), PSPTL_OK);
    else
        deliver_overflow(psc_container_of(op, psptl_buffer_t, op));
}

static void deliver_all(psptl_channel_t *channel)
{
    psptl_op_t *op;

    while (channel->open && (op = psc_reorder_next(&channel->window))) {
        if ((channel->window.n_held > 1 ||
             psptl_fence_rewound(&channel->fence)) &&
            !psptl_withhold_may_deliver(channel, op))
            return;
        op = psc_reorder_take(&channel->window);
        deliver_op(channel, op);
    }
}

void psptl_deliver_pending(psptl_device_t *device)
{
    psc_link_t *link;

    while ((link = psc_list_pop(&device->pending)))
        deliver_all(psc_container_of(link, psptl_channel_t, receiving.pending));
}

bool psptl_deliver_in_order(psptl_channel_t *channel, psptl_op_t *op,
                            uint32_t number)
{
    switch (psc_reorder_put(&channel->window, number, op)) {
    case PSC_REORDER_NEXT:
        deliver_all(channel);
        return true;
    case PSC_REORDER_EARLY:
        psptl_count(channel, PSPTL_COUNTER_early);
        return true;
    case PSC_REORDER_DUPLICATE:
        psptl_count(channel, PSPTL_COUNTER_duplicates);
        return false;
    default:
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "a message with a number far ahead");
        return false;
    }
}

/* ---- events ---- */

void psptl_buffer_event(psptl_buffer_t *buffer, const ptl_event_t *event)
{
    psptl_channel_t *channel = buffer->channel;

    buffer->posted = false;
    if (!channel->owner)
        return;
    if (event->ni_fail_type != PTL_NI_OK || event->mlength < event->rlength ||
        event->mlength > channel->device->settings.buffer_size) {
        psptl_buffer_again(buffer);
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "a message of %llu bytes for a buffer of %zu: %s",
                           (unsigned long long)event->rlength,
                           channel->device->settings.buffer_size,
                           psptl_fault_name(event->ni_fail_type));
        return;
    }
    buffer->len = event->mlength;
    buffer->initiator = event->initiator;
    buffer->word = (uint32_t)(event->hdr_data >> PSPTL_WORD_SHIFT);
    if (!psptl_deliver_in_order(channel, &buffer->op,
                                (uint32_t)event->hdr_data))
        psptl_buffer_again(buffer);
}

unsigned psptl_deliver_lost(psptl_device_t *device)
{
    psc_link_t *link;
    unsigned n = 0;

    while ((link = psc_list_pop(&device->lost_tags))) {
        deliver_tag(psc_container_of(link, psptl_tag_t, link), PSPTL_LOST);
        n++;
    }
    return n;
}
