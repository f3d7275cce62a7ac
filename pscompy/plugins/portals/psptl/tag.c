/* Posted receives: their states, and their entries in the interface. */
#include "match.h"

#include <stdlib.h>
#include <string.h>

#include "channel.h"

#define TAG_UNLINK_TRIES 100u

/* ---- states ---- */

void psptl_tag_enter(psptl_tag_t *tag, psptl_tag_state_t state)
{
    tag->channel->matching.n_withheld +=
        (state == PSPTL_TAG_HELD) - (tag->state == PSPTL_TAG_HELD);
    tag->state = state;
}

void psptl_tag_give(psptl_tag_t *tag)
{
    psptl_tag_enter(tag, PSPTL_TAG_MATCHED);
    tag->channel->matching.n_tags--;
    psc_list_remove(&tag->link);
    psc_list_push_front(&tag->channel->device->spare_tags, &tag->link);
}

psptl_tag_t *psptl_tag_take(psptl_channel_t *channel)
{
    psc_link_t *link = psc_list_pop(&channel->device->spare_tags);
    psptl_tag_t *tag =
        link ? psc_container_of(link, psptl_tag_t, link) : malloc(sizeof(*tag));

    if (!tag)
        return NULL;
    *tag = (psptl_tag_t){
        .op = {.kind = PSPTL_TAG},
        .channel = channel,
        /* a start value, until the receive is linked or withheld */
        .state = PSPTL_TAG_MATCHED,
        .place = channel->matching.places++,
    };
    psc_list_init(&tag->link);
    psc_list_push(&channel->matching.tags, &tag->link);
    channel->matching.n_tags++;
    return tag;
}

void psptl_tag_lose(psptl_tag_t *tag)
{
    psptl_tag_enter(tag, PSPTL_TAG_MATCHED);
    psc_list_remove(&tag->link);
    psc_list_push(&tag->channel->device->lost_tags, &tag->link);
}

/* ---- entries ---- */

bool psptl_tag_link(psptl_tag_t *tag)
{
    psptl_channel_t *channel = tag->channel;
    psptl_device_t *device = channel->device;
    ptl_me_t me = psptl_me_once(
        channel, tag->receive.base, tag->receive.len,
        tag->receive.match | psptl_source_bits(channel->matching.source));

    me.ignore_bits = tag->receive.ignore;
    tag->op.unlinked = false;
    if (device->ni->PtlMEAppend(device->handle, device->tag.pt, &me,
                                PTL_PRIORITY_LIST, &tag->op,
                                &tag->me) != PTL_OK)
        return false;
    psptl_tag_enter(tag, PSPTL_TAG_LINKED);
    return true;
}

/* Unlinks the list entry of a receive. Tries several times, because PTL_IN_USE
 * may only mean that the interface is comparing the entry with a message. */
void psptl_tag_unlink(psptl_tag_t *tag)
{
    if (tag->state == PSPTL_TAG_LINKED)
        psptl_op_unlink(tag->channel->device, &tag->op, tag->me,
                        TAG_UNLINK_TRIES);
}

void psptl_tags_unlink(psptl_channel_t *channel)
{
    psc_list_for_each(tag, &channel->matching.tags, psptl_tag_t, link)
        psptl_tag_unlink(tag);
}

bool psptl_tag_back(const psptl_tag_t *tag)
{
    return tag->state == PSPTL_TAG_HELD ||
           (tag->state == PSPTL_TAG_LINKED && psptl_op_back(&tag->op));
}

bool psptl_tags_back(psptl_channel_t *channel)
{
    psc_list_for_each(tag, &channel->matching.tags, psptl_tag_t, link) {
        if (psptl_tag_back(tag))
            psptl_tag_give(tag);
    }
    return channel->matching.n_tags == 0;
}

/* ---- messages ---- */

/* Returns the message that an event reports. Some libraries lose the original
 * length of a message that waited in an overflow buffer; then the length in the
 * buffer is the length of the message. */
psptl_tagged_t psptl_tag_message(const ptl_event_t *event, bool unexpected)
{
    bool direct = event->match_bits & PSPTL_TAG_DIRECT && event->rlength > 0;

    return (psptl_tagged_t){
        .bits = event->match_bits & ~PSPTL_SOURCE_MASK,
        .word = (uint32_t)(event->hdr_data >> PSPTL_WORD_SHIFT),
        .len =
            event->rlength > event->mlength ? event->rlength : event->mlength,
        .number = (uint32_t)event->hdr_data,
        .missed = unexpected && direct,
    };
}

void psptl_tag_copy(psptl_tag_t *tag, const uint8_t *bytes, size_t len)
{
    if (len > 0)
        memcpy(tag->receive.base, bytes, len);
    psptl_count_many(tag->channel, PSPTL_COUNTER_tag_copied, len);
}

/* ---- freeing ---- */

static void tag_free_all(psc_list_t *list)
{
    psc_link_t *link;

    while ((link = psc_list_pop(list)))
        free(psc_container_of(link, psptl_tag_t, link));
}

void psptl_tag_free(psptl_channel_t *channel)
{
    tag_free_all(&channel->matching.tags);
}

void psptl_tag_close(psptl_device_t *device)
{
    tag_free_all(&device->lost_tags);
    tag_free_all(&device->spare_tags);
}
