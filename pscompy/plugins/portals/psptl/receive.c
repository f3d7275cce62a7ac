/* Messages that came in: the receive ring, and the order of the numbers. */
#include "driver.h"

/* ---- the ring ---- */

bool psptl_buffer_post(psptl_buffer_t *buffer)
{
    psptl_channel_t *channel = buffer->channel;
    psptl_device_t *device = channel->device;
    ptl_me_t me = psptl_me_once(channel, buffer->bytes,
                                device->settings.buffer_size, channel->bits);

    buffer->op.unlinked = false;
    buffer->posted = device->ni->PtlMEAppend(
                         device->handle, device->eager.pt, &me,
                         PTL_PRIORITY_LIST, &buffer->op, &buffer->me) ==
                     PTL_OK;
    return buffer->posted;
}

void psptl_buffer_unlink(psptl_buffer_t *buffer)
{
    if (buffer->posted)
        psptl_op_unlink(buffer->channel->device, &buffer->op, buffer->me, 1);
}

bool psptl_buffer_back(psptl_buffer_t *buffer)
{
    if (psptl_op_back(&buffer->op))
        buffer->posted = false;
    return !buffer->posted;
}

static void arrive_again(psptl_buffer_t *buffer)
{
    psptl_channel_t *channel = buffer->channel;

    if (!channel->owner || psptl_buffer_post(buffer))
        return;
    psptl_channel_fail(channel, PSPTL_BROKEN,
                       "the interface takes no entry for a receive buffer "
                       "(PSP_PORTALS_RECVQ_SIZE)");
}

/* ---- delivering ---- */

static bool arrive_same(const ptl_process_t *a, const ptl_process_t *b)
{
    return a->phys.nid == b->phys.nid && a->phys.pid == b->phys.pid;
}

static void arrive_deliver(psptl_channel_t *channel, psptl_op_t *op)
{
    psptl_device_t *device = channel->device;
    psptl_buffer_t *buffer;

    device->n_delivered++;
    if (op->kind != PSPTL_BUFFER) {
        psptl_tag_deliver(op);
        return;
    }
    buffer = psc_container_of(op, psptl_buffer_t, op);
    if (!arrive_same(&buffer->initiator, &channel->peer_id)) {
        arrive_again(buffer);
        return;
    }
    if (buffer->word) {
        psptl_hold_told(channel, buffer->word);
    } else {
        psptl_count(channel, PSPTL_COUNTER_arrived);
        device->owner->arrived(channel->owner, buffer->bytes, buffer->len);
    }
    arrive_again(buffer);
}

static void arrive_deliver_all(psptl_channel_t *channel)
{
    psptl_op_t *op;

    while (channel->open && (op = psptl_window_next(&channel->window))) {
        if ((channel->n_windowed > 1 || channel->rewound) &&
            !psptl_hold_may_deliver(channel, op))
            return;
        op = psptl_window_take(&channel->window);
        channel->n_windowed--;
        arrive_deliver(channel, op);
    }
}

void psptl_arrive_pending(psptl_device_t *device)
{
    psc_link_t *link;

    while ((link = psc_list_pop(&device->pending)))
        arrive_deliver_all(psc_container_of(link, psptl_channel_t, pending));
}

bool psptl_arrive_in_order(psptl_channel_t *channel, psptl_op_t *op,
                           uint32_t number)
{
    switch (psptl_window_put(&channel->window, number, op)) {
    case PSPTL_WINDOW_NEXT:
        channel->n_windowed++;
        arrive_deliver_all(channel);
        return true;
    case PSPTL_WINDOW_EARLY:
        channel->n_windowed++;
        psptl_count(channel, PSPTL_COUNTER_early);
        return true;
    case PSPTL_WINDOW_DUPLICATE:
        psptl_count(channel, PSPTL_COUNTER_duplicates);
        return false;
    default:
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "a message with a number far ahead");
        return false;
    }
}

void psptl_arrive_event(psptl_buffer_t *buffer, const ptl_event_t *event)
{
    psptl_channel_t *channel = buffer->channel;

    buffer->posted = false;
    if (!channel->owner)
        return;
    if (event->ni_fail_type != PTL_NI_OK || event->mlength < event->rlength ||
        event->mlength > channel->device->settings.buffer_size) {
        arrive_again(buffer);
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
    if (!psptl_arrive_in_order(channel, &buffer->op,
                               (uint32_t)event->hdr_data))
        arrive_again(buffer);
}
