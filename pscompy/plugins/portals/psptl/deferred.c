/* Receives that are kept back from the interface, and get their messages here
 * meanwhile, when these are handed up in the order of their numbers.
 *
 * A receive is kept back while a message is on its way up that it might be
 * meant for. All receives are, when the interface has closed the table entry:
 * messages that it refused come again, behind later ones, which must not find
 * the receives of the earlier ones. A fence ends that: the peer answers it in
 * the same sequence of numbers. When the answer's turn has come, whatever was
 * sent before it has come; what was sent after it was sent after the entry had
 * been opened, so it has come in order, or the entry was closed once more and
 * the number of the fence is another.
 *
 * A message that was dropped while the entry was open comes too late: a later
 * one may have got its receive. Nobody was told of that, since it is not its
 * turn. So all that follow give their receives back, and the above begins. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define HOLD_FENCES 0x7ffffffeu
#define HOLD_ANSWER 1u /* the lowest bit of a word: this is one */

static void hold_unsettled(psptl_channel_t *channel)
{
    if (!psc_link_listed(&channel->unsettled))
        psc_list_push(&channel->device->unsettled, &channel->unsettled);
}

void psptl_hold(psptl_tag_t *tag)
{
    psptl_tag_enter(tag, PSPTL_TAG_HELD);
    psptl_count(tag->channel, PSPTL_COUNTER_tag_held);
    hold_unsettled(tag->channel);
}

static bool hold_fits(const psptl_tag_t *tag, uint64_t bits)
{
    return ((tag->receive.match ^ bits) & ~tag->receive.ignore) == 0;
}

psptl_tag_t *psptl_hold_find(psptl_channel_t *channel, uint64_t bits)
{
    if (channel->n_held == 0)
        return NULL;
    psc_list_for_each(tag, &channel->tags, psptl_tag_t, link) {
        if (tag->state == PSPTL_TAG_HELD && hold_fits(tag, bits))
            return tag;
    }
    return NULL;
}

/* ---- taking receives back ---- */

static uint32_t hold_linked(const psptl_channel_t *channel)
{
    uint32_t n = 0;

    psc_list_for_each(tag, &channel->tags, psptl_tag_t, link)
        n += tag->state == PSPTL_TAG_LINKED;
    return n;
}

static void hold_back(psptl_channel_t *channel)
{
    psc_list_for_each(tag, &channel->tags, psptl_tag_t, link) {
        if (tag->state == PSPTL_TAG_LINKED && psptl_op_back(&tag->op))
            psptl_hold(tag);
    }
}

/* False: some have matched, of which the interface is yet to tell. */
static bool hold_suspend(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;

    channel->suspended = true;
    if (hold_linked(channel) == 0)
        return true;
    if (!psptl_backlog_fetch(device, &device->tag))
        return false;
    psptl_tags_unlink(channel);
    if (!psptl_backlog_fetch(device, &device->tag))
        return false;
    hold_back(channel);
    return hold_linked(channel) == 0;
}

bool psptl_hold_all(psptl_device_t *device)
{
    bool all = true;

    psc_list_for_each(channel, &device->channels, psptl_channel_t, link) {
        if (channel->overflows)
            all &= hold_suspend(channel);
    }
    return all;
}

/* What was asked before does not answer this. */
static void hold_fence(psptl_channel_t *channel)
{
    channel->fence = channel->fence % HOLD_FENCES + 1;
}

void psptl_hold_ask(psptl_device_t *device)
{
    psc_list_for_each(channel, &device->channels, psptl_channel_t, link)
        hold_fence(channel);
}

/* ---- messages that leave their receives ---- */

/* NULL: no memory, and the channel fails. */
static psptl_buffer_t *hold_copy(psptl_channel_t *channel, const void *bytes,
                                 size_t len, const psptl_tagged_t *message)
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

psptl_buffer_t *psptl_hold_aside(psptl_tag_t *tag)
{
    size_t come = tag->message.missed ? 0 : tag->message.len;
    size_t len = come < tag->receive.len ? come : tag->receive.len;
    psptl_buffer_t *buffer =
        hold_copy(tag->channel, tag->receive.base, len, &tag->message);

    if (buffer) {
        tag->channel->n_between++;
        psptl_hold(tag);
    }
    return buffer;
}

psptl_buffer_t *psptl_hold_buffer(psptl_buffer_t *buffer)
{
    psptl_buffer_t *copy = hold_copy(buffer->channel, buffer->bytes,
                                     buffer->len, &buffer->message);

    if (copy)
        psptl_overflow_again(buffer);
    return copy;
}

static void hold_rewind(psptl_channel_t *channel)
{
    psptl_count(channel, PSPTL_COUNTER_tag_rewinds);
    channel->rewound = true;
    hold_fence(channel);
    hold_suspend(channel);
    for (uint32_t i = 0; i < channel->window.size; i++) {
        psptl_op_t *op = channel->window.held[i];
        psptl_buffer_t *buffer;

        if (!op || op->kind != PSPTL_TAG)
            continue;
        buffer = psptl_hold_aside(psc_container_of(op, psptl_tag_t, op));
        if (buffer)
            channel->window.held[i] = &buffer->op;
    }
}

/* Has a later message got a receive that stands before this place? */
static bool hold_overtaken(const psptl_channel_t *channel, uint64_t bits,
                           uint64_t place)
{
    for (uint32_t i = 0; i < channel->window.size; i++) {
        psptl_op_t *op = channel->window.held[i];

        if (op && op->kind == PSPTL_TAG) {
            psptl_tag_t *tag = psc_container_of(op, psptl_tag_t, op);

            if (tag->place < place && hold_fits(tag, bits))
                return true;
        }
    }
    return false;
}

/* Have others that follow this one got its receive? */
static bool hold_late(const psptl_channel_t *channel, const psptl_op_t *op)
{
    const psptl_tag_t *tag = psc_container_of(op, psptl_tag_t, op);
    const psptl_buffer_t *buffer = psc_container_of(op, psptl_buffer_t, op);

    if (op->kind == PSPTL_TAG)
        return hold_overtaken(channel, tag->message.bits, tag->place);
    return op->kind == PSPTL_OVERFLOW &&
           hold_overtaken(channel, buffer->message.bits, UINT64_MAX);
}

/* Those of which the interface is yet to tell have receives to give back,
 * too. */
bool psptl_hold_may_deliver(psptl_channel_t *channel, const psptl_op_t *op)
{
    if (!channel->rewound && hold_late(channel, op))
        hold_rewind(channel);
    return !channel->rewound || hold_suspend(channel);
}

void psptl_hold_free(psptl_channel_t *channel)
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

static bool hold_say(psptl_channel_t *channel, uint32_t word)
{
    if (!psptl_send_begin(channel))
        return false;
    channel->sends[channel->at].word = word;
    psptl_send_end(channel, 0);
    return true;
}

static void hold_answered(psptl_channel_t *channel, uint32_t fence)
{
    if (!channel->asked)
        return;
    channel->asked = false;
    if (fence != channel->fence || !channel->suspended)
        return;
    channel->suspended = channel->rewound = false;
    psptl_count(channel, PSPTL_COUNTER_tag_fences);
}

void psptl_hold_told(psptl_channel_t *channel, uint32_t word)
{
    if (word & HOLD_ANSWER)
        hold_answered(channel, word >> 1);
    else
        channel->answer = word >> 1;
    if (!channel->parting)
        hold_unsettled(channel);
}

/* ---- settling ---- */

/* In their order; those that the interface has no room for stay. */
static void hold_give(psptl_channel_t *channel)
{
    psc_list_for_each(tag, &channel->tags, psptl_tag_t, link) {
        if (tag->state == PSPTL_TAG_HELD && !psptl_tag_link(tag))
            return;
    }
}

static void hold_try_again(psptl_channel_t *channel)
{
    if (psptl_window_next(&channel->window) &&
        !psc_link_listed(&channel->pending))
        psc_list_push(&channel->device->pending, &channel->pending);
}

static bool hold_settled(psptl_channel_t *channel)
{
    if (channel->failed)
        return true;
    if (channel->answer &&
        hold_say(channel, channel->answer << 1 | HOLD_ANSWER))
        channel->answer = 0;
    if (channel->suspended && !channel->asked &&
        (channel->n_held > 0 || channel->rewound) &&
        !channel->device->tag.disabled)
        channel->asked = hold_say(channel, channel->fence << 1);
    if (!channel->suspended && channel->n_between == 0)
        hold_give(channel);
    if (channel->rewound)
        hold_try_again(channel);
    return channel->n_held == 0 && channel->answer == 0 &&
           !channel->rewound;
}

void psptl_hold_settle(psptl_device_t *device)
{
    psc_list_for_each(channel, &device->unsettled, psptl_channel_t, unsettled) {
        if (hold_settled(channel))
            psc_list_remove(&channel->unsettled);
    }
}
