/* Messages that the interface matches: sending them, posting and cancelling
 * receives, and the events of receives, overflow buffers and searches. */
#include "match.h"

#include <stdlib.h>

#include "channel.h"

/* ---- sending ---- */

void psptl_tag_send(psptl_channel_t *channel, size_t len, uint64_t bits,
                    uint32_t word)
{
    psptl_send_t *send = &channel->sending.ring[channel->sending.at];

    send->tagged = true;
    send->bits = bits | psptl_source_bits(channel->peer.source);
    send->word = word;
    psptl_count(channel, PSPTL_COUNTER_tag_puts);
    psptl_send_end(channel, len);
}

/* ---- receives ---- */

psptl_tag_t *psptl_tag_post(psptl_channel_t *channel,
                            const psptl_receive_t *receive)
{
    bool hold = !psptl_withhold_nothing(channel);
    psptl_tag_t *tag = channel->failed ? NULL : psptl_tag_take(channel);

    if (tag) {
        tag->receive = *receive;
        if (hold)
            psptl_withhold(tag);
        if (hold || psptl_tag_link(tag)) {
            psptl_count(channel, PSPTL_COUNTER_tag_posts);
            return tag;
        }
        psptl_tag_give(tag);
    }
    psptl_count(channel, PSPTL_COUNTER_tag_refused);
    return NULL;
}

bool psptl_tag_cancel(psptl_tag_t *tag)
{
    psptl_device_t *device = tag->channel->device;

    if (tag->state == PSPTL_TAG_LINKED) {
        if (!psptl_backlog_fetch(device, &device->tag))
            return false;
        psptl_tag_unlink(tag);
        if (!psptl_backlog_fetch(device, &device->tag)) {
            /* the receive is unlinked, or has matched a message: nobody knows
             */
            psptl_channel_fail(tag->channel, PSPTL_BROKEN,
                               "no memory for the events of receives");
            return false;
        }
    }
    if (!psptl_tag_back(tag))
        return false;
    psptl_tag_give(tag);
    return true;
}

/* ---- messages with a receive ---- */

/* Delivers the message when all messages with lower numbers have been
 * delivered. Returns false if the number is wrong; the channel fails then. */
static bool match_in_order(psptl_channel_t *channel, psptl_op_t *op,
                           const ptl_event_t *event)
{
    if (psptl_deliver_in_order(channel, op, (uint32_t)event->hdr_data))
        return true;
    psptl_channel_fail(channel, PSPTL_BROKEN,
                       "a message whose number was used before");
    return false;
}

/* Delivers a copy of a message in order, or frees it if its number is wrong. */
static void match_copy(psptl_buffer_t *copy, const ptl_event_t *event)
{
    psptl_channel_t *channel = copy->channel;

    if (match_in_order(channel, &copy->op, event))
        return;
    channel->matching.n_between--;
    free(copy);
}

static void match_aside(psptl_tag_t *tag, const ptl_event_t *event)
{
    psptl_buffer_t *copy = psptl_withhold_aside(tag);

    if (copy)
        match_copy(copy, event);
    else
        psptl_tag_lose(tag);
}

static void match_found(psptl_tag_t *tag, const ptl_event_t *event)
{
    psptl_channel_t *channel = tag->channel;

    psptl_tag_enter(tag, PSPTL_TAG_MATCHED);
    tag->message = psptl_tag_message(event, event->type != PTL_EVENT_PUT);
    if (event->ni_fail_type != PTL_NI_OK || channel->matching.given_up) {
        psptl_tag_lose(tag);
        return;
    }
    if (psptl_fence_rewound(&channel->fence))
        match_aside(tag, event);
    else if (!match_in_order(channel, &tag->op, event))
        psptl_tag_lose(tag);
}

/* Returns the overflow buffer that contains the message; NULL if none does. */
static psptl_buffer_t *match_buffer(const psptl_channel_t *channel,
                                    const ptl_event_t *event)
{
    return psptl_buffers_at(&channel->matching.overflows,
                            channel->device->settings.buffer_size,
                            event->start);
}

/* Handles the event of a receive that found a message in an overflow buffer. */
static void match_claimed(psptl_tag_t *tag, const ptl_event_t *event)
{
    psptl_channel_t *channel = tag->channel;
    psptl_buffer_t *buffer = match_buffer(channel, event);
    size_t len =
        event->mlength < tag->receive.len ? event->mlength : tag->receive.len;

    psptl_count(channel, PSPTL_COUNTER_tag_claimed);
    if (!buffer) {
        psptl_tag_lose(tag);
        return;
    }
    if (!psptl_tag_message(event, true).missed)
        psptl_tag_copy(tag, event->start, len);
    psptl_buffer_again(buffer);
    match_found(tag, event);
}

/* Returns whether the event belongs to the receive `tag`. The interface may
 * report an event for a receive that was withdrawn, and whose psptl_tag_t
 * another receive uses by now. */
static bool match_meant(const psptl_tag_t *tag, const ptl_event_t *event)
{
    ptl_match_bits_t bits =
        tag->receive.match | psptl_source_bits(tag->channel->matching.source);

    return tag->state == PSPTL_TAG_LINKED &&
           ((bits ^ event->match_bits) & ~tag->receive.ignore) == 0;
}

static void match_receive(psptl_tag_t *tag, const ptl_event_t *event)
{
    if (!match_meant(tag, event))
        return;
    if (event->type == PTL_EVENT_PUT_OVERFLOW)
        match_claimed(tag, event);
    else
        match_found(tag, event);
}

/* ---- messages without a receive ---- */

static void overflow_search(psptl_channel_t *channel, const ptl_event_t *event)
{
    psptl_device_t *device = channel->device;
    ptl_me_t me = psptl_me_once(channel, NULL, 0, event->match_bits);

    channel->matching.n_between++;
    if (device->ni->PtlMESearch(device->handle, device->tag.pt, &me,
                                PTL_SEARCH_DELETE,
                                &channel->matching.search) == PTL_OK)
        channel->matching.n_searching++;
    else
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "the interface does not search "
                           "(PSP_PORTALS_MATCHING)");
}

/* Handles a message that has arrived in an overflow buffer: searches the
 * overflow list once for the message's match bits. The search finds this
 * message, or an earlier one with the same bits, or none if a receive has
 * matched the message before. The search removes what it finds from the
 * interface's list, also messages of destroyed channels. */
static void overflow_event(psptl_buffer_t *buffer, const ptl_event_t *event)
{
    buffer->posted = false;
    if (event->ni_fail_type != PTL_NI_OK)
        psptl_buffer_again(buffer);
    else
        overflow_search(buffer->channel, event);
}

static bool overflow_scarce(const psptl_channel_t *channel, uint32_t number)
{
    const psptl_settings_t *settings = &channel->device->settings;

    return settings->overflows < settings->recvq &&
           number != channel->window.expected;
}

static void overflow_found(psptl_channel_t *channel, const ptl_event_t *event)
{
    psptl_buffer_t *buffer;
    psptl_tagged_t message;

    channel->matching.n_searching--;
    if (event->ni_fail_type != PTL_NI_OK) {
        channel->matching.n_between--;
        return;
    }
    buffer = match_buffer(channel, event);
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
    if (!overflow_scarce(channel, (uint32_t)event->hdr_data))
        match_in_order(channel, &buffer->op, event);
    else if ((buffer = psptl_withhold_buffer(buffer)))
        match_copy(buffer, event);
}

/* ---- events ---- */

/* Tells events apart by the kind of their operation (user_ptr), because
 * libraries differ in the type of the event for a message that a search
 * found. */
void psptl_match_event(const ptl_event_t *event)
{
    psptl_op_t *op = event->user_ptr;

    switch (op->kind) {
    case PSPTL_SEARCH:
        overflow_found(psc_container_of(op, psptl_channel_t, matching.search),
                       event);
        break;
    case PSPTL_OVERFLOW:
        overflow_event(psc_container_of(op, psptl_buffer_t, op), event);
        break;
    default:
        match_receive(psc_container_of(op, psptl_tag_t, op), event);
    }
}

void psptl_match_abort(psptl_channel_t *channel)
{
    channel->matching.given_up = true;
    for (uint32_t i = 0; i < channel->window.size; i++) {
        psptl_op_t *op = channel->window.held[i];

        if (op && op->kind == PSPTL_TAG) {
            channel->window.held[i] = NULL;
            channel->window.n_held--;
            psptl_tag_lose(psc_container_of(op, psptl_tag_t, op));
        }
    }
}
