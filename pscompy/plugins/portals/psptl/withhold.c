/* Holding receives, sending fences, and rewinding messages; match.h explains
 * these terms. */
#include "match.h"

#include <stdlib.h>
#include <string.h>

#include "channel.h"

/* lowest bit of the word in a driver message's header data: set in the answer
 * to a fence, clear in a fence */
#define HOLD_ANSWER 1u

static void withhold_unsettled(psptl_channel_t *channel)
{
    if (!psc_link_listed(&channel->fence.unsettled))
        psc_list_push(&channel->device->unsettled, &channel->fence.unsettled);
}

void psptl_withhold(psptl_tag_t *tag)
{
    psptl_tag_enter(tag, PSPTL_TAG_HELD);
    psptl_count(tag->channel, PSPTL_COUNTER_tag_held);
    withhold_unsettled(tag->channel);
}

static bool withhold_fits(const psptl_tag_t *tag, uint64_t bits)
{
    return ((tag->receive.match ^ bits) & ~tag->receive.ignore) == 0;
}

psptl_tag_t *psptl_withhold_find(psptl_channel_t *channel, uint64_t bits)
{
    if (channel->matching.n_withheld == 0)
        return NULL;
    psc_list_for_each(tag, &channel->matching.tags, psptl_tag_t, link) {
        if (tag->state == PSPTL_TAG_HELD && withhold_fits(tag, bits))
            return tag;
    }
    return NULL;
}

/* ---- withdrawing receives ---- */

static uint32_t withhold_linked(const psptl_channel_t *channel)
{
    uint32_t n = 0;

    psc_list_for_each(tag, &channel->matching.tags, psptl_tag_t, link)
        n += tag->state == PSPTL_TAG_LINKED;
    return n;
}

static void withhold_back(psptl_channel_t *channel)
{
    psc_list_for_each(tag, &channel->matching.tags, psptl_tag_t, link) {
        if (tag->state == PSPTL_TAG_LINKED && psptl_op_back(&tag->op))
            psptl_withhold(tag);
    }
}

/* Withdraws all receives of the channel from the interface. Returns false if
 * some of them have matched a message, but the events of these have not
 * arrived. */
static bool withhold_suspend(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;

    psptl_fence_step(&channel->fence, PSPTL_FENCE_SUSPEND);
    if (withhold_linked(channel) == 0)
        return true;
    if (!psptl_backlog_fetch(device, &device->tag))
        return false;
    psptl_tags_unlink(channel);
    if (!psptl_backlog_fetch(device, &device->tag))
        return false;
    withhold_back(channel);
    return withhold_linked(channel) == 0;
}

bool psptl_withhold_all(psptl_device_t *device)
{
    bool all = true;

    psc_list_for_each(channel, &device->channels, psptl_channel_t, link) {
        if (channel->matching.overflows.n > 0)
            all &= withhold_suspend(channel);
    }
    return all;
}

void psptl_withhold_ask(psptl_device_t *device)
{
    psc_list_for_each(channel, &device->channels, psptl_channel_t, link)
        psptl_fence_renew(&channel->fence);
}

/* ---- returning messages from their receives ---- */

/* Copies a message into a new buffer. Returns NULL if memory is short; the
 * channel fails then. */
static psptl_buffer_t *withhold_copy(psptl_channel_t *channel,
                                     const void *bytes, size_t len,
                                     const psptl_tagged_t *message)
{
    psptl_buffer_t *buffer = malloc(sizeof(*buffer) + len);

    if (!buffer) {
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "no memory for a message without receive");
        return NULL;
    }
    *buffer = (psptl_buffer_t){
        .op = {.kind = PSPTL_OVERFLOW},
        .channel = channel,
        .bytes = (uint8_t *)(buffer + 1),
        .len = len,
        .aside = true,
        .message = *message,
    };
    buffer->message.bytes = buffer->bytes;
    if (len > 0)
        memcpy(buffer->bytes, bytes, len);
    psptl_count(channel, PSPTL_COUNTER_tag_aside);
    psptl_count_many(channel, PSPTL_COUNTER_tag_copied, len);
    return buffer;
}

psptl_buffer_t *psptl_withhold_aside(psptl_tag_t *tag)
{
    size_t arrived = tag->message.missed ? 0 : tag->message.len;
    size_t len = arrived < tag->receive.len ? arrived : tag->receive.len;
    psptl_buffer_t *buffer =
        withhold_copy(tag->channel, tag->receive.base, len, &tag->message);

    if (buffer) {
        tag->channel->matching.n_between++;
        psptl_withhold(tag);
    }
    return buffer;
}

psptl_buffer_t *psptl_withhold_buffer(psptl_buffer_t *buffer)
{
    psptl_buffer_t *copy = withhold_copy(buffer->channel, buffer->bytes,
                                         buffer->len, &buffer->message);

    if (copy)
        psptl_buffer_again(buffer);
    return copy;
}

static void withhold_rewind(psptl_channel_t *channel)
{
    psptl_count(channel, PSPTL_COUNTER_tag_rewinds);
    psptl_fence_step(&channel->fence, PSPTL_FENCE_REWIND);
    psptl_fence_renew(&channel->fence);
    withhold_suspend(channel);
    for (uint32_t i = 0; i < channel->window.size; i++) {
        psptl_op_t *op = channel->window.held[i];
        psptl_buffer_t *buffer;

        if (!op || op->kind != PSPTL_TAG)
            continue;
        buffer = psptl_withhold_aside(psc_container_of(op, psptl_tag_t, op));
        if (buffer)
            channel->window.held[i] = &buffer->op;
    }
}

/* Returns true if a later message, which waits for its turn, has consumed a
 * receive that matches these bits and was posted before the receive numbered
 * `place`. */
static bool withhold_overtaken(const psptl_channel_t *channel, uint64_t bits,
                               uint64_t place)
{
    for (uint32_t i = 0; i < channel->window.size; i++) {
        psptl_op_t *op = channel->window.held[i];

        if (op && op->kind == PSPTL_TAG) {
            psptl_tag_t *tag = psc_container_of(op, psptl_tag_t, op);

            if (tag->place < place && withhold_fits(tag, bits))
                return true;
        }
    }
    return false;
}

/* Returns true if a later message, which waits for its turn, has consumed the
 * receive that belongs to the message of `op`. */
static bool withhold_late(const psptl_channel_t *channel, const psptl_op_t *op)
{
    const psptl_tag_t *tag = psc_container_of(op, psptl_tag_t, op);
    const psptl_buffer_t *buffer = psc_container_of(op, psptl_buffer_t, op);

    if (op->kind == PSPTL_TAG)
        return withhold_overtaken(channel, tag->message.bits, tag->place);
    return op->kind == PSPTL_OVERFLOW &&
           withhold_overtaken(channel, buffer->message.bits, UINT64_MAX);
}

/* Rewinds the channel (match.h) if a later message consumed the receive that
 * belongs to `op`. Receives that have not matched are withdrawn, too. */
bool psptl_withhold_may_deliver(psptl_channel_t *channel, const psptl_op_t *op)
{
    if (!psptl_fence_rewound(&channel->fence) && withhold_late(channel, op))
        withhold_rewind(channel);
    return !psptl_fence_rewound(&channel->fence) || withhold_suspend(channel);
}

void psptl_withhold_free(psptl_channel_t *channel)
{
    for (uint32_t i = 0; channel->window.held && i < channel->window.size;
         i++) {
        psptl_op_t *op = channel->window.held[i];

        if (op && op->kind == PSPTL_OVERFLOW &&
            psc_container_of(op, psptl_buffer_t, op)->aside)
            free(psc_container_of(op, psptl_buffer_t, op));
    }
}

/* ---- fences ---- */

static bool withhold_say(psptl_channel_t *channel, uint32_t word)
{
    if (!psptl_send_begin(channel))
        return false;
    channel->sending.ring[channel->sending.at].word = word;
    psptl_send_end(channel, 0);
    return true;
}

static void withhold_answered(psptl_channel_t *channel, uint32_t number)
{
    psptl_fence_t *fence = &channel->fence;
    bool open = psptl_fence_open(fence);

    psptl_fence_step(fence, number == fence->number ? PSPTL_FENCE_ANSWERED
                                                    : PSPTL_FENCE_STALE);
    psptl_count_many(channel, PSPTL_COUNTER_tag_fences,
                     !open && psptl_fence_open(fence));
}

void psptl_withhold_word(psptl_channel_t *channel, uint32_t word)
{
    if (word & HOLD_ANSWER)
        withhold_answered(channel, word >> 1);
    else
        channel->fence.answer = word >> 1;
    if (!psptl_fence_parted(&channel->fence))
        withhold_unsettled(channel);
}

/* ---- settling ---- */

/* Gives withheld receives (withheld until now) to the interface in the order of
 * posting, until the interface has no room for another. */
static void withhold_give(psptl_channel_t *channel)
{
    psc_list_for_each(tag, &channel->matching.tags, psptl_tag_t, link) {
        if (tag->state == PSPTL_TAG_HELD && !psptl_tag_link(tag))
            return;
    }
}

static void withhold_try_again(psptl_channel_t *channel)
{
    if (psc_reorder_next(&channel->window) &&
        !psc_link_listed(&channel->receiving.pending))
        psc_list_push(&channel->device->pending, &channel->receiving.pending);
}

static void withhold_answer(psptl_channel_t *channel)
{
    psptl_fence_t *fence = &channel->fence;

    if (fence->answer &&
        withhold_say(channel, fence->answer << 1 | HOLD_ANSWER))
        fence->answer = 0;
}

static void withhold_ask(psptl_channel_t *channel)
{
    psptl_fence_t *fence = &channel->fence;
    bool needed =
        channel->matching.n_withheld > 0 || psptl_fence_rewound(fence);

    if (psptl_fence_wanted(fence) && needed && !channel->device->tag.disabled &&
        withhold_say(channel, fence->number << 1))
        psptl_fence_step(fence, PSPTL_FENCE_ASK);
}

/* Sends fences, and answers to fences, that are due, and links withheld
 * receives if possible (match.h). Returns true if the channel then holds no
 * receive and owes no answer or fence. */
static bool withhold_settled(psptl_channel_t *channel)
{
    psptl_fence_t *fence = &channel->fence;

    if (channel->failed || psptl_fence_parted(fence))
        return true;
    withhold_answer(channel);
    withhold_ask(channel);
    if (psptl_fence_open(fence) && channel->matching.n_between == 0)
        withhold_give(channel);
    if (psptl_fence_rewound(fence))
        withhold_try_again(channel);
    return channel->matching.n_withheld == 0 && fence->answer == 0 &&
           !psptl_fence_rewound(fence);
}

void psptl_withhold_settle(psptl_device_t *device)
{
    psc_list_for_each(channel, &device->unsettled, psptl_channel_t,
                      fence.unsettled) {
        if (withhold_settled(channel))
            psc_list_remove(&channel->fence.unsettled);
    }
}
