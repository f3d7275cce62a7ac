/* A channel: its rings, its life, and the bounded wait until the interface
 * does not use its memory any more. */
#include "channel.h"

#include <stdio.h>
#include <stdlib.h>

#include "match.h"
#include "pscompy/transport/kit/clock.h"

/* How long a zombie (a destroyed channel) stays allocated after the interface
 * has given back all its entries, in nanoseconds. One library returns entries
 * of the overflow list while it still writes to them, and reports their events
 * afterwards. */
#define CHANNEL_LINGER_NS 100000000ll

/* ---- rings ---- */

static bool channel_sends(psptl_channel_t *channel, size_t size)
{
    psptl_sending_t *sending = &channel->sending;

    sending->ring = calloc(sending->n, sizeof(*sending->ring));
    sending->bytes = psptl_ring_bytes(sending->n, size);
    if (!sending->ring || !sending->bytes)
        return false;
    for (uint32_t i = 0; i < sending->n; i++)
        sending->ring[i] = (psptl_send_t){
            .op = {.kind = PSPTL_SEND},
            .channel = channel,
            .bytes = sending->bytes + i * size,
        };
    return true;
}

static bool channel_buffers(psptl_channel_t *channel)
{
    psc_reorder_t *window = &channel->window;
    uint32_t n = channel->device->settings.recvq + PSPTL_EXTRA_BUFFERS;

    window->size = window->limit = psc_reorder_size(n);
    window->held = calloc(window->size, sizeof(*window->held));
    return window->held &&
           psptl_buffers_make(channel, &channel->receiving.buffers,
                              PSPTL_BUFFER, n);
}

/* Posts the list entry to which the peer puts its pings (empty puts that ask
 * whether this side is alive). The entry has no memory. */
static bool channel_post_ping(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;
    ptl_me_t me = {
        .ct_handle = PTL_CT_NONE,
        .uid = PTL_UID_ANY,
        .options = PTL_ME_OP_PUT | PTL_ME_EVENT_COMM_DISABLE |
                   PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_UNLINK_DISABLE,
        .match_id = {.phys = {.nid = PTL_NID_ANY, .pid = PTL_PID_ANY}},
        .match_bits = channel->bits,
    };

    return device->ni->PtlMEAppend(device->handle, device->bulk.pt, &me,
                                   PTL_PRIORITY_LIST, NULL,
                                   &channel->ping.me) == PTL_OK;
}

/* ---- creating ---- */

psptl_channel_t *psptl_channel_create(psptl_device_t *device, void *owner,
                                      char *reason)
{
    const psptl_settings_t *settings = &device->settings;
    psptl_channel_t *channel = calloc(1, sizeof(*channel));

    snprintf(reason, PSPTL_REASON_MAX,
             "no memory for the rings of a connection "
             "(PSP_PORTALS_SENDQ_SIZE, PSP_PORTALS_RECVQ_SIZE)");
    if (!channel)
        return NULL;
    *channel = (psptl_channel_t){
        .device = device,
        .owner = owner,
        .bits = psptl_device_bits(device),
        .sending = {.n = settings->sendq},
        .matching = {.search = {.kind = PSPTL_SEARCH}},
        .ping = {.op = {.kind = PSPTL_PING}, .me = PTL_INVALID_HANDLE},
    };
    psc_list_init(&channel->sending.waiting);
    psc_list_init(&channel->receiving.pending);
    psc_list_init(&channel->regions);
    psc_list_init(&channel->matching.tags);
    psc_list_init(&channel->fence.unsettled);
    psptl_source_take(channel);
    psc_list_push(&device->channels, &channel->link);
    if (!channel_sends(channel, settings->buffer_size) ||
        !channel_buffers(channel)) {
        psptl_channel_free(channel);
        return NULL;
    }
    if (!psptl_buffers_post(&channel->receiving.buffers) ||
        !channel_post_ping(channel)) {
        snprintf(reason, PSPTL_REASON_MAX,
                 "the interface takes no more entries (%d are its limit; "
                 "PSP_PORTALS_RECVQ_SIZE)",
                 device->limits.max_entries);
        psptl_channel_destroy(channel);
        return NULL;
    }
    return channel;
}

void psptl_channel_address(const psptl_channel_t *channel,
                           psptl_address_t *address_p)
{
    const psptl_device_t *device = channel->device;

    *address_p = (psptl_address_t){
        .nid = device->self.phys.nid,
        .pid = device->self.phys.pid,
        .eager = device->eager.pt,
        .bulk = device->bulk.pt,
        .tag = device->tag.pt,
        .source = channel->matching.source,
        .bits = channel->bits,
    };
    if (device->ni->softni_cookie)
        device->ni->softni_cookie(device->handle, address_p->secret);
}

/* Sets how long the software NI waits for this peer. All channels to the peer
 * share this time, so no limit is set if one of them has a patience_ns of 0. */
static void channel_patience(psptl_device_t *device, ptl_process_t peer_id)
{
    uint64_t patience_ns = 0;
    bool found = false;

    psc_list_for_each(channel, &device->channels, psptl_channel_t, link) {
        if (!channel->open || channel->peer_id.phys.nid != peer_id.phys.nid ||
            channel->peer_id.phys.pid != peer_id.phys.pid)
            continue;
        found = true;
        patience_ns = channel->patience_ns;
        if (patience_ns == 0)
            break;
    }
    if (found && device->ni->softni_patience)
        device->ni->softni_patience(device->handle, peer_id, patience_ns);
}

void psptl_channel_patience(psptl_channel_t *channel, uint64_t patience_ns)
{
    channel->patience_ns = patience_ns;
    channel_patience(channel->device, channel->peer_id);
}

void psptl_channel_connect(psptl_channel_t *channel,
                           const psptl_address_t *peer, uint64_t patience_ns)
{
    psptl_device_t *device = channel->device;

    channel->peer = *peer;
    channel->peer_id.phys.nid = peer->nid;
    channel->peer_id.phys.pid = peer->pid;
    channel->open = true;
    psptl_channel_patience(channel, patience_ns);
    psc_list_push(&device->pending, &channel->receiving.pending);
    if (device->ni->softni_admit &&
        device->ni->softni_admit(device->handle, channel->peer_id,
                                 peer->secret) != PTL_OK)
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "the interface does not admit this peer");
    if (!psptl_source_connect(channel))
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "no room for messages without receive "
                           "(PSP_PORTALS_RECVQ_SIZE, PSP_PORTALS_MATCHING)");
}

/* ---- ending ---- */

bool psptl_channel_idle(const psptl_channel_t *channel)
{
    return channel->n_flying == 0 && channel->sending.n_waiting == 0 &&
           channel->n_bulks == 0 && channel->matching.n_tags == 0;
}

void psptl_channel_abort(psptl_channel_t *channel)
{
    for (uint32_t i = 0; i < channel->sending.n; i++) {
        if (channel->sending.ring[i].state == PSPTL_SEND_WAITING)
            channel->sending.ring[i].state = PSPTL_SEND_FREE;
    }
    channel->sending.n_waiting = 0;
    psc_list_remove(&channel->sending.waiting);
    psptl_bulk_abort(channel);
    psptl_match_abort(channel);
}

void psptl_channel_part(psptl_channel_t *channel)
{
    psptl_fence_step(&channel->fence, PSPTL_FENCE_PART);
    psc_list_remove(&channel->fence.unsettled);
}

/* Unlinks the list entry for the peer's pings. Returns false if a ping is using
 * the entry (PTL_IN_USE). After any other result the interface has given back
 * the entry, because the entry makes no events. */
static bool channel_ping_back(psptl_channel_t *channel)
{
    if (channel->ping.me != PTL_INVALID_HANDLE &&
        channel->device->ni->PtlMEUnlink(channel->ping.me) == PTL_IN_USE)
        return false;
    channel->ping.me = PTL_INVALID_HANDLE;
    return true;
}

static bool channel_fetch(psptl_device_t *device)
{
    return psptl_backlog_fetch(device, &device->eager) &&
           psptl_backlog_fetch(device, &device->tag);
}

/* Unlinks the channel's list entries. Returns true if the interface has given
 * back all of them. */
static bool channel_withdraw(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;
    bool all = channel_ping_back(channel);

    if (!channel_fetch(device))
        return false;
    psptl_buffers_unlink(&channel->receiving.buffers);
    psptl_buffers_unlink(&channel->matching.overflows);
    psptl_tags_unlink(channel);
    if (!channel_fetch(device))
        return false;
    all &= psptl_buffers_back(&channel->receiving.buffers);
    all &= psptl_buffers_back(&channel->matching.overflows);
    return psptl_tags_back(channel) && all;
}

/* Unlinks the list entries of a zombie (a destroyed channel), and notes the
 * time when the interface has given back all of them. */
static void channel_settle(psptl_channel_t *channel)
{
    if (channel_withdraw(channel) && channel->n_flying == 0 &&
        channel->matching.n_searching == 0) {
        channel->withdrawn_at = psc_clock_now();
        psptl_source_leave(channel);
    }
}

void psptl_channel_destroy(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;

    psptl_channel_abort(channel);
    psptl_region_detach(channel);
    channel->owner = NULL;
    channel->open = false;
    channel->failed = true;
    psc_list_remove(&channel->fence.unsettled);
    psc_list_remove(&channel->link);
    psc_list_push(&device->zombies, &channel->link);
    channel_patience(device, channel->peer_id);
    channel_settle(channel);
}

void psptl_channel_reap(psptl_device_t *device)
{
    int64_t now = psc_clock_now();

    psc_list_for_each(channel, &device->zombies, psptl_channel_t, link) {
        if (!channel->withdrawn_at)
            channel_settle(channel);
        else if (now - channel->withdrawn_at >= CHANNEL_LINGER_NS)
            psptl_channel_free(channel);
    }
}

unsigned psptl_channel_held(const psptl_device_t *device)
{
    unsigned n = 0;

    psc_list_for_each(channel, &device->zombies, psptl_channel_t, link)
        n += !channel->withdrawn_at;
    return n;
}

void psptl_channel_free(psptl_channel_t *channel)
{
    if (!channel->withdrawn_at)
        psptl_source_leave(channel);
    psc_list_remove(&channel->link);
    psc_list_remove(&channel->sending.waiting);
    psc_list_remove(&channel->receiving.pending);
    psc_list_remove(&channel->fence.unsettled);
    psptl_withhold_free(channel);
    psptl_tag_free(channel);
    psptl_buffers_free(&channel->receiving.buffers);
    psptl_buffers_free(&channel->matching.overflows);
    free(channel->window.held);
    free(channel->sending.ring);
    free(channel->sending.bytes);
    free(channel);
}
