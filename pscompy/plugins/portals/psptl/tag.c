/* Messages that the interface matches. Receives of the owner stand in the
 * priority list of a portal table entry, overflow buffers behind them
 * (overflow.c). What was refused there is sent again and comes late: hold.c
 * sees to it that it finds its receive nevertheless.
 *
 * The bits of a source are the receiver's name for the channel. The header
 * data carries the message's number, the same sequence as that of the eager
 * messages, so that the owner gets all in one order, and the sender's word. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define TAG_SOURCES 0xffffu
#define TAG_EVENTS 3u /* of one message, at most */
#define TAG_CANCEL_TRIES 100u

/* ---- which channels ---- */

static bool tag_source_used(psptl_device_t *device, uint32_t source)
{
    psc_list_for_each(channel, &device->channels, psptl_channel_t, link) {
        if (channel->source == source)
            return true;
    }
    psc_list_for_each(channel, &device->zombies, psptl_channel_t, link) {
        if (channel->source == source)
            return true;
    }
    return false;
}

void psptl_tag_source(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;
    const psptl_settings_t *settings = &device->settings;
    uint64_t events = (uint64_t)TAG_EVENTS * settings->recvq;

    if (!settings->matching) {
        channel->tag_flaw = "PSP_PORTALS_MATCHING=0";
    } else if (device->n_sources >= TAG_SOURCES) {
        channel->tag_flaw = "more connections than the match bits can tell "
                            "apart";
    } else if ((device->n_sources + 1) * events > device->flying_max) {
        channel->tag_flaw = "more connections than the event queue has room "
                            "for (PSP_PORTALS_EQ_SIZE)";
    } else {
        do
            device->last_source = device->last_source % TAG_SOURCES + 1;
        while (tag_source_used(device, device->last_source));
        channel->source = device->last_source;
        device->n_sources++;
    }
}

void psptl_tag_source_leave(psptl_channel_t *channel)
{
    channel->device->n_sources -= channel->source > 0;
}

bool psptl_tag_connect(psptl_channel_t *channel)
{
    if (!channel->source)
        return true;
    if (channel->peer.source)
        return psptl_overflow_open(channel);
    channel->tag_flaw = "the peer does not match in its interface";
    return true;
}

const char *psptl_tag_flaw(const psptl_channel_t *channel)
{
    return channel->tag_flaw;
}

/* ---- sending ---- */

void psptl_tag_send(psptl_channel_t *channel, size_t len, uint64_t bits,
                    uint32_t word)
{
    psptl_send_t *send = &channel->sends[channel->at];

    send->tagged = true;
    send->bits = bits | psptl_source_bits(channel->peer.source);
    send->word = word;
    psptl_count(channel, PSPTL_COUNTER_tag_puts);
    psptl_send_end(channel, len);
}

/* ---- receives ---- */

static void tag_give(psptl_tag_t *tag)
{
    psptl_tag_enter(tag, PSPTL_TAG_MATCHED);
    tag->channel->n_tags--;
    psc_list_remove(&tag->link);
    psc_list_push_front(&tag->channel->device->spare_tags, &tag->link);
}

static psptl_tag_t *tag_take(psptl_channel_t *channel)
{
    psc_link_t *link = psc_list_pop(&channel->device->spare_tags);
    psptl_tag_t *tag = link ? psc_container_of(link, psptl_tag_t, link)
                            : malloc(sizeof(*tag));

    if (!tag)
        return NULL;
    *tag = (psptl_tag_t){
        .op = {.kind = PSPTL_TAG},
        .channel = channel,
        .state = PSPTL_TAG_MATCHED, /* until it is somewhere */
        .place = channel->places++,
    };
    psc_list_init(&tag->link);
    psc_list_push(&channel->tags, &tag->link);
    channel->n_tags++;
    return tag;
}

void psptl_tag_enter(psptl_tag_t *tag, psptl_tag_state_t state)
{
    tag->channel->n_held += (state == PSPTL_TAG_HELD) -
                            (tag->state == PSPTL_TAG_HELD);
    tag->state = state;
}

bool psptl_tag_link(psptl_tag_t *tag)
{
    psptl_channel_t *channel = tag->channel;
    psptl_device_t *device = channel->device;
    ptl_me_t me = psptl_me_once(
        channel, tag->receive.base, tag->receive.len,
        tag->receive.match | psptl_source_bits(channel->source));

    me.ignore_bits = tag->receive.ignore;
    tag->op.unlinked = false;
    if (device->ni->PtlMEAppend(device->handle, device->tag.pt, &me,
                                PTL_PRIORITY_LIST, &tag->op,
                                &tag->me) != PTL_OK)
        return false;
    psptl_tag_enter(tag, PSPTL_TAG_LINKED);
    return true;
}

psptl_tag_t *psptl_tag_post(psptl_channel_t *channel,
                            const psptl_receive_t *receive)
{
    bool hold = !psptl_hold_nothing(channel);
    psptl_tag_t *tag = channel->failed ? NULL : tag_take(channel);

    if (tag) {
        tag->receive = *receive;
        if (hold)
            psptl_hold(tag);
        if (hold || psptl_tag_link(tag)) {
            psptl_count(channel, PSPTL_COUNTER_tag_posts);
            return tag;
        }
        tag_give(tag);
    }
    psptl_count(channel, PSPTL_COUNTER_tag_refused);
    return NULL;
}

/* In use may also mean that the interface looks at it this moment. */
void psptl_tag_unlink(psptl_tag_t *tag)
{
    if (tag->state == PSPTL_TAG_LINKED)
        psptl_op_unlink(tag->channel->device, &tag->op, tag->me,
                        TAG_CANCEL_TRIES);
}

/* True: the interface has not got it, or not any more, and no message came. */
static bool tag_back(const psptl_tag_t *tag)
{
    return tag->state == PSPTL_TAG_HELD ||
           (tag->state == PSPTL_TAG_LINKED && psptl_op_back(&tag->op));
}

bool psptl_tag_cancel(psptl_tag_t *tag)
{
    psptl_device_t *device = tag->channel->device;

    if (tag->state == PSPTL_TAG_LINKED) {
        if (!psptl_backlog_fetch(device, &device->tag))
            return false;
        psptl_tag_unlink(tag);
        if (!psptl_backlog_fetch(device, &device->tag))
            return false;
    }
    if (!tag_back(tag))
        return false;
    tag_give(tag);
    return true;
}

/* ---- what has happened ---- */

/* There are libraries that have lost the length as it was sent, when they tell
 * of what waited in an overflow buffer, which has all of it. */
psptl_tagged_t psptl_tag_message(const ptl_event_t *event, bool unexpected)
{
    bool direct = event->match_bits & PSPTL_TAG_DIRECT && event->rlength > 0;

    return (psptl_tagged_t){
        .bits = event->match_bits & ~PSPTL_SOURCE_MASK,
        .word = (uint32_t)(event->hdr_data >> PSPTL_WORD_SHIFT),
        .len = event->rlength > event->mlength ? event->rlength
                                               : event->mlength,
        .number = (uint32_t)event->hdr_data,
        .missed = unexpected && direct,
    };
}

static void tag_lose(psptl_tag_t *tag)
{
    psptl_tag_enter(tag, PSPTL_TAG_MATCHED);
    psc_list_remove(&tag->link);
    psc_list_push(&tag->channel->device->lost_tags, &tag->link);
}

bool psptl_tag_arrive(psptl_channel_t *channel, psptl_op_t *op,
                      const ptl_event_t *event)
{
    if (psptl_arrive_in_order(channel, op, (uint32_t)event->hdr_data))
        return true;
    psptl_channel_fail(channel, PSPTL_BROKEN, "a message with a number that "
                                              "there was before");
    return false;
}

static void tag_matched_aside(psptl_tag_t *tag, const ptl_event_t *event)
{
    psptl_buffer_t *buffer = psptl_hold_aside(tag);

    if (!buffer) {
        tag_lose(tag);
    } else if (!psptl_tag_arrive(tag->channel, &buffer->op, event)) {
        tag->channel->n_between--;
        free(buffer);
    }
}

static void tag_matched(psptl_tag_t *tag, const ptl_event_t *event)
{
    psptl_channel_t *channel = tag->channel;

    psptl_tag_enter(tag, PSPTL_TAG_MATCHED);
    tag->message = psptl_tag_message(event, event->type != PTL_EVENT_PUT);
    if (event->ni_fail_type != PTL_NI_OK || channel->given_up) {
        tag_lose(tag);
        return;
    }
    if (channel->rewound)
        tag_matched_aside(tag, event);
    else if (!psptl_tag_arrive(channel, &tag->op, event))
        tag_lose(tag);
}

static void tag_copy(psptl_tag_t *tag, const uint8_t *bytes, size_t len)
{
    if (len > 0)
        memcpy(tag->receive.base, bytes, len);
    psptl_count_many(tag->channel, PSPTL_COUNTER_tag_copied, len);
}

/* A receive has found a message that was there before it. */
static void tag_claimed(psptl_tag_t *tag, const ptl_event_t *event)
{
    psptl_channel_t *channel = tag->channel;
    psptl_buffer_t *buffer = psptl_overflow_at(channel, event->start);
    size_t len = event->mlength < tag->receive.len ? event->mlength
                                                   : tag->receive.len;

    psptl_count(channel, PSPTL_COUNTER_tag_claimed);
    if (!buffer) {
        tag_lose(tag);
        return;
    }
    if (!psptl_tag_message(event, true).missed)
        tag_copy(tag, event->start, len);
    psptl_overflow_again(buffer);
    tag_matched(tag, event);
}

/* The interface may not tell of a receive that it has given back: whoever has
 * it now is not meant. */
static bool tag_meant(const psptl_tag_t *tag, const ptl_event_t *event)
{
    ptl_match_bits_t bits = tag->receive.match |
                            psptl_source_bits(tag->channel->source);

    return tag->state == PSPTL_TAG_LINKED &&
           ((bits ^ event->match_bits) & ~tag->receive.ignore) == 0;
}

static void tag_met(psptl_tag_t *tag, const ptl_event_t *event)
{
    if (!tag_meant(tag, event))
        return;
    if (event->type == PTL_EVENT_PUT_OVERFLOW)
        tag_claimed(tag, event);
    else
        tag_matched(tag, event);
}

/* What a search finds comes by either type: libraries differ. */
void psptl_tag_event(const ptl_event_t *event)
{
    psptl_op_t *op = event->user_ptr;

    switch (op->kind) {
    case PSPTL_SEARCH:
        psptl_overflow_found(psc_container_of(op, psptl_channel_t, search),
                             event);
        break;
    case PSPTL_OVERFLOW:
        psptl_overflow_event(psc_container_of(op, psptl_buffer_t, op), event);
        break;
    default:
        tag_met(psc_container_of(op, psptl_tag_t, op), event);
    }
}

/* ---- telling of it ---- */

static void tag_deliver(psptl_tag_t *tag, psptl_verdict_t verdict)
{
    psptl_channel_t *channel = tag->channel;
    psptl_device_t *device = channel->device;
    psptl_tagged_t message = tag->message;
    void *cookie = tag->receive.cookie;

    tag_give(tag);
    psptl_count_many(channel, PSPTL_COUNTER_tag_matched,
                     verdict == PSPTL_OK);
    if (channel->owner)
        device->owner->tagged(channel->owner, cookie, &message, verdict);
}

/* It was held, and the message is in a buffer. */
void psptl_tag_get(psptl_tag_t *tag, const psptl_buffer_t *buffer)
{
    size_t len = buffer->message.len < tag->receive.len ? buffer->message.len
                                                        : tag->receive.len;

    tag->message = buffer->message;
    if (!tag->message.missed)
        tag_copy(tag, buffer->bytes, len);
    psptl_count(tag->channel, PSPTL_COUNTER_tag_kept);
    tag_deliver(tag, PSPTL_OK);
}

void psptl_tag_deliver(psptl_op_t *op)
{
    if (op->kind == PSPTL_TAG)
        tag_deliver(psc_container_of(op, psptl_tag_t, op), PSPTL_OK);
    else
        psptl_overflow_deliver(psc_container_of(op, psptl_buffer_t, op));
}

unsigned psptl_tag_tell(psptl_device_t *device)
{
    psc_link_t *link;
    unsigned n = 0;

    while ((link = psc_list_pop(&device->lost_tags))) {
        tag_deliver(psc_container_of(link, psptl_tag_t, link), PSPTL_LOST);
        n++;
    }
    return n;
}

/* ---- ending ---- */

void psptl_tag_abort(psptl_channel_t *channel)
{
    channel->given_up = true;
    for (uint32_t i = 0; i < channel->window.size; i++) {
        psptl_op_t *op = channel->window.held[i];

        if (op && op->kind == PSPTL_TAG) {
            channel->window.held[i] = NULL;
            channel->n_windowed--;
            tag_lose(psc_container_of(op, psptl_tag_t, op));
        }
    }
}

void psptl_tags_unlink(psptl_channel_t *channel)
{
    psc_list_for_each(tag, &channel->tags, psptl_tag_t, link)
        psptl_tag_unlink(tag);
}

bool psptl_tags_back(psptl_channel_t *channel)
{
    psc_list_for_each(tag, &channel->tags, psptl_tag_t, link) {
        if (tag_back(tag))
            tag_give(tag);
    }
    return channel->n_tags == 0;
}

static void tag_free_all(psc_list_t *list)
{
    psc_link_t *link;

    while ((link = psc_list_pop(list)))
        free(psc_container_of(link, psptl_tag_t, link));
}

void psptl_tag_free(psptl_channel_t *channel)
{
    tag_free_all(&channel->tags);
}

void psptl_tag_close(psptl_device_t *device)
{
    tag_free_all(&device->lost_tags);
    tag_free_all(&device->spare_tags);
}
