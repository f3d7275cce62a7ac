/* The send ring, resends and pings. */
#include "channel.h"

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
    channel->sending.n_waiting++;
    if (!psc_link_listed(&channel->sending.waiting))
        psc_list_push(&channel->device->waiting, &channel->sending.waiting);
}

/* Puts a message. Returns false if the interface takes no more operations at
 * present. */
static bool send_put(psptl_send_t *send)
{
    psptl_channel_t *channel = send->channel;
    psptl_device_t *device = channel->device;
    const psptl_address_t *peer = &channel->peer;
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
    psptl_send_t *send = &channel->sending.ring[channel->sending.at];

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
    psptl_send_t *send = &channel->sending.ring[channel->sending.at];

    send->len = (uint32_t)len;
    send->number = channel->sending.next++;
    send->again = false;
    send->drops = 0;
    channel->sending.at = (channel->sending.at + 1) % channel->sending.n;
    if (channel->sending.n_waiting > 0 || !send_put(send))
        send_wait(send);
}

/* ---- putting again ---- */

/* Puts the messages in the state PSPTL_SEND_WAITING in the order of their
 * numbers. */
static void send_channel_again(psptl_channel_t *channel)
{
    psptl_sending_t *sending = &channel->sending;

    for (uint32_t i = 0; i < sending->n && sending->n_waiting > 0; i++) {
        psptl_send_t *send = &sending->ring[(sending->at + i) % sending->n];

        if (send->state != PSPTL_SEND_WAITING)
            continue;
        if (!send_put(send))
            return;
        channel->sending.n_waiting--;
        if (send->again)
            psptl_count(channel, PSPTL_COUNTER_resends);
    }
    psc_list_remove(&channel->sending.waiting);
}

void psptl_send_again(psptl_device_t *device)
{
    int64_t now = psc_list_empty(&device->waiting) ? 0 : psc_clock_now();

    psc_list_for_each(channel, &device->waiting, psptl_channel_t,
                      sending.waiting) {
        if (channel->sending.retry_at <= now)
            send_channel_again(channel);
    }
}

/* ---- acknowledgements ---- */

void psptl_send_back_off(psptl_channel_t *channel)
{
    int64_t now = psc_clock_now();

    if (now < channel->sending.retry_at)
        return;
    if (channel->sending.backoff >= SEND_BACKOFF_DOUBLINGS)
        psptl_channel_ping(channel);
    channel->sending.retry_at = now + psptl_backoff(channel->sending.backoff++);
}

bool psptl_send_may_retry(psptl_channel_t *channel, ptl_ni_fail_t fault,
                          uint32_t *drops)
{
    if (fault == PTL_NI_PT_DISABLED) {
        psptl_count(channel, PSPTL_COUNTER_disabled);
        return true;
    }
    psptl_count(channel, PSPTL_COUNTER_dropped);
    if (psptl_spare_failed(channel, fault))
        return false;
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
    psptl_send_back_off(channel);
    if (psptl_send_may_retry(channel, fault, &send->drops))
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
        channel->sending.backoff = 0;
        if (channel->owner)
            channel->device->owner->room(channel->owner);
    } else if (!channel->failed) {
        send_dropped(send, event->ni_fail_type);
    }
}

/* ---- pings ---- */

void psptl_channel_ping(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;
    const psptl_address_t *peer = &channel->peer;

    if (channel->ping.flying || device->flying >= device->flying_max)
        return;
    channel->ping.flying =
        device->ni->PtlPut(device->md, 0, 0, PTL_ACK_REQ, channel->peer_id,
                           peer->bulk, peer->bits, 0, &channel->ping.op,
                           0) == PTL_OK;
    device->flying += channel->ping.flying;
    channel->n_flying += channel->ping.flying;
    channel->ping.hasty = channel->patience_ns > 0;
    psptl_count(channel, PSPTL_COUNTER_pings);
}

/* Handles a ping that met no list entry at the target, because the peer's
 * channel is closed. The peer's last message may still wait to be read here, so
 * the channel fails only after the second such ping. */
static void ping_unanswered(psptl_channel_t *channel)
{
    if (++channel->ping.failed > 1)
        psptl_channel_fail(channel, PSPTL_LOST,
                           "the peer has given up this connection");
}

/* Handles a ping that the peer's interface did not answer. If patience_ns was
 * set to 0 after the ping was sent, the channel does not fail: the next ping
 * gets the full time. */
static void ping_undelivered(psptl_channel_t *channel)
{
    if (!channel->ping.hasty || channel->patience_ns > 0)
        psptl_channel_fail(channel, PSPTL_LOST, PSPTL_NO_ANSWER);
}

void psptl_ping_event(psptl_channel_t *channel, const ptl_event_t *event)
{
    channel->device->flying--;
    channel->n_flying--;
    channel->ping.flying = false;
    if (event->ni_fail_type == PTL_NI_OK)
        channel->ping.failed = 0;
    else if (event->ni_fail_type == PTL_NI_UNDELIVERABLE)
        ping_undelivered(channel);
    else
        ping_unanswered(channel);
}
