/* Messages on their way out. Each stays in its buffer until it is known to
 * have arrived. One that did not is put again after a while; those behind it
 * wait too, so that they come in order. A disabled table entry at the target
 * is enabled by its owner, however long that takes, if the channel is still
 * there; for anything else there is a limit. */
#include "driver.h"
#include "pscompy/transport/kit/clock.h"

#define SEND_BACKOFF_NS 20000ll
#define SEND_BACKOFF_DOUBLINGS 10u

int64_t psptl_backoff(unsigned attempts)
{
    return SEND_BACKOFF_NS << (attempts < SEND_BACKOFF_DOUBLINGS
                                   ? attempts
                                   : SEND_BACKOFF_DOUBLINGS);
}

/* ---- putting ---- */

static void send_wait(psptl_send_t *send)
{
    psptl_channel_t *channel = send->channel;

    send->state = PSPTL_SEND_WAITING;
    channel->n_waiting++;
    if (!psc_link_listed(&channel->waiting))
        psc_list_push(&channel->device->waiting, &channel->waiting);
}

/* A full interface is no failure. */
void psptl_put_failed(psptl_channel_t *channel, int status)
{
    if (status != PTL_NO_SPACE)
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "the interface takes no put or get (error %d)",
                           status);
}

/* False: the interface takes no more now. */
static bool send_put(psptl_send_t *send)
{
    psptl_channel_t *channel = send->channel;
    psptl_device_t *device = channel->device;
    const psptl_place_t *peer = &channel->peer;
    int status;

    if (device->flying >= device->flying_max) {
        psptl_count(channel, PSPTL_COUNTER_event_room);
        return false;
    }
    status = device->ni->PtlPut(
        device->md, (ptl_size_t)(uintptr_t)send->bytes, send->len, PTL_ACK_REQ,
        channel->peer_id, send->tagged ? peer->tag : peer->eager,
        send->tagged ? send->bits : peer->bits, 0, &send->op,
        psptl_header_data(send->word, send->number));
    if (status != PTL_OK) {
        psptl_put_failed(channel, status);
        return false;
    }
    send->state = PSPTL_SEND_FLYING;
    device->flying++;
    channel->n_flying++;
    psptl_count(channel, PSPTL_COUNTER_puts);
    return true;
}

uint8_t *psptl_send_begin(psptl_channel_t *channel)
{
    psptl_send_t *send = &channel->sends[channel->at];

    if (send->state == PSPTL_SEND_FREE) {
        send->tagged = false;
        send->word = 0;
        return send->bytes;
    }
    psptl_count(channel, PSPTL_COUNTER_ring_full);
    return NULL;
}

void psptl_send_end(psptl_channel_t *channel, size_t len)
{
    psptl_send_t *send = &channel->sends[channel->at];

    send->len = (uint32_t)len;
    send->number = channel->next++;
    send->again = false;
    send->drops = 0;
    channel->at = (channel->at + 1) % channel->n_sends;
    if (channel->n_waiting > 0 || !send_put(send))
        send_wait(send);
}

/* ---- putting again ---- */

/* From the oldest to the newest. */
static void send_channel_again(psptl_channel_t *channel)
{
    for (uint32_t i = 0; i < channel->n_sends && channel->n_waiting > 0; i++) {
        psptl_send_t *send =
            &channel->sends[(channel->at + i) % channel->n_sends];

        if (send->state != PSPTL_SEND_WAITING)
            continue;
        if (!send_put(send))
            return;
        channel->n_waiting--;
        if (send->again)
            psptl_count(channel, PSPTL_COUNTER_resends);
    }
    psc_list_remove(&channel->waiting);
}

void psptl_send_again(psptl_device_t *device)
{
    int64_t now = psc_list_empty(&device->waiting) ? 0 : psc_clock_now();

    psc_list_for_each(channel, &device->waiting, psptl_channel_t, waiting) {
        if (channel->retry_at <= now)
            send_channel_again(channel);
    }
}

/* ---- what became of it ---- */

/* Once for all that were under way together. */
static void send_back_off(psptl_channel_t *channel)
{
    int64_t now = psc_clock_now();

    if (now < channel->retry_at)
        return;
    if (channel->backoff >= SEND_BACKOFF_DOUBLINGS)
        psptl_channel_ping(channel);
    channel->retry_at = now + psptl_backoff(channel->backoff++);
}

bool psptl_send_bear(psptl_channel_t *channel, ptl_ni_fail_t fault,
                     uint32_t *drops)
{
    if (fault == PTL_NI_PT_DISABLED) {
        psptl_count(channel, PSPTL_COUNTER_disabled);
        return true;
    }
    psptl_count(channel, PSPTL_COUNTER_dropped);
    if (++*drops <= channel->device->settings.retries)
        return true;
    psptl_channel_fail(channel, PSPTL_LOST,
                       "the peer is not reached: %s, %u attempts "
                       "(PSP_PORTALS_RETRY_COUNT)",
                       psptl_fault_name(fault), *drops);
    return false;
}

static void send_dropped(psptl_send_t *send, ptl_ni_fail_t fault)
{
    psptl_channel_t *channel = send->channel;

    send->again = true;
    send_back_off(channel);
    if (psptl_send_bear(channel, fault, &send->drops))
        send_wait(send);
}

void psptl_send_event(psptl_send_t *send, const ptl_event_t *event)
{
    psptl_channel_t *channel = send->channel;

    channel->device->flying--;
    channel->n_flying--;
    send->state = PSPTL_SEND_FREE;
    if (event->ni_fail_type == PTL_NI_OK &&
        (send->tagged || event->mlength == send->len)) {
        channel->backoff = 0;
        if (channel->owner)
            channel->device->owner->room(channel->owner);
    } else if (!channel->failed) {
        send_dropped(send, event->ni_fail_type);
    }
}

/* ---- asking ---- */

void psptl_channel_ping(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;
    const psptl_place_t *peer = &channel->peer;

    if (channel->pinging || device->flying >= device->flying_max)
        return;
    channel->pinging =
        device->ni->PtlPut(device->md, 0, 0, PTL_ACK_REQ, channel->peer_id,
                           peer->bulk, peer->bits, 0, &channel->ping, 0) ==
        PTL_OK;
    device->flying += channel->pinging;
    channel->n_flying += channel->pinging;
    psptl_count(channel, PSPTL_COUNTER_pings);
}

/* Its entry is gone: so is the channel, and what it said last may still be
 * waiting to be read; therefore twice. */
static void ping_met_nobody(psptl_channel_t *channel)
{
    if (++channel->vain_pings > 1)
        psptl_channel_fail(channel, PSPTL_LOST,
                           "the peer has given up this connection");
}

void psptl_ping_event(psptl_channel_t *channel, const ptl_event_t *event)
{
    channel->device->flying--;
    channel->n_flying--;
    channel->pinging = false;
    if (event->ni_fail_type == PTL_NI_OK)
        channel->vain_pings = 0;
    else if (event->ni_fail_type == PTL_NI_UNDELIVERABLE)
        psptl_channel_fail(channel, PSPTL_LOST,
                           "the peer's interface does not answer");
    else
        ping_met_nobody(channel);
}
