/* A channel: its rings, its life, and the bounded wait until the interface
 * has let go of its memory. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "pscompy/transport/kit/clock.h"

/* A zombie stays so long after all its entries are back: there is a library
 * that gives entries of the overflow list back while it still writes to them,
 * and tells of them afterwards. */
#define CHANNEL_LINGER_NS 100000000ll

/* ---- rings ---- */

static void *channel_block(size_t n, size_t size)
{
    size_t len = (n * size + 63) & ~(size_t)63;

    return aligned_alloc(64, len);
}

static bool channel_sends(psptl_channel_t *channel, size_t size)
{
    channel->sends = calloc(channel->n_sends, sizeof(*channel->sends));
    channel->send_bytes = channel_block(channel->n_sends, size);
    if (!channel->sends || !channel->send_bytes)
        return false;
    for (uint32_t i = 0; i < channel->n_sends; i++)
        channel->sends[i] = (psptl_send_t){
            .op = {.kind = PSPTL_SEND},
            .channel = channel,
            .bytes = channel->send_bytes + i * size,
        };
    return true;
}

static bool channel_buffers(psptl_channel_t *channel, size_t size)
{
    psptl_window_t *window = &channel->window;

    window->size = psptl_power_of_two(channel->n_buffers);
    window->held = calloc(window->size, sizeof(*window->held));
    channel->buffers = calloc(channel->n_buffers, sizeof(*channel->buffers));
    channel->buffer_bytes = channel_block(channel->n_buffers, size);
    if (!window->held || !channel->buffers || !channel->buffer_bytes)
        return false;
    for (uint32_t i = 0; i < channel->n_buffers; i++)
        channel->buffers[i] = (psptl_buffer_t){
            .op = {.kind = PSPTL_BUFFER},
            .channel = channel,
            .bytes = channel->buffer_bytes + i * size,
        };
    return true;
}

static bool channel_post(psptl_channel_t *channel)
{
    for (uint32_t i = 0; i < channel->n_buffers; i++) {
        if (!psptl_buffer_post(&channel->buffers[i]))
            return false;
    }
    return true;
}

/* What a peer puts to in order to see that we are there: nothing. */
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
                                   &channel->ping_me) == PTL_OK;
}

/* ---- creating ---- */

psptl_channel_t *psptl_channel_create(psptl_device_t *device, void *owner,
                                      char *reason, size_t room)
{
    const psptl_settings_t *settings = &device->settings;
    psptl_channel_t *channel = calloc(1, sizeof(*channel));

    snprintf(reason, room,
             "no memory for the rings of a connection "
             "(PSP_PORTALS_SENDQ_SIZE, PSP_PORTALS_RECVQ_SIZE)");
    if (!channel)
        return NULL;
    *channel = (psptl_channel_t){
        .device = device,
        .owner = owner,
        .ping = {.kind = PSPTL_PING},
        .search = {.kind = PSPTL_SEARCH},
        .ping_me = PTL_INVALID_HANDLE,
        .bits = psptl_device_bits(device),
        .n_sends = settings->sendq,
        .n_buffers = settings->recvq + PSPTL_EXTRA_BUFFERS,
    };
    psc_list_init(&channel->waiting);
    psc_list_init(&channel->pending);
    psc_list_init(&channel->regions);
    psc_list_init(&channel->tags);
    psc_list_init(&channel->unsettled);
    psptl_tag_source(channel);
    psc_list_push(&device->channels, &channel->link);
    if (!channel_sends(channel, settings->buffer_size) ||
        !channel_buffers(channel, settings->buffer_size)) {
        psptl_channel_free(channel);
        return NULL;
    }
    if (!channel_post(channel) || !channel_post_ping(channel)) {
        snprintf(reason, room,
                 "the interface takes no more entries (%d are its limit; "
                 "PSP_PORTALS_RECVQ_SIZE)",
                 device->limits.max_entries);
        psptl_channel_destroy(channel);
        return NULL;
    }
    return channel;
}

void psptl_channel_place(const psptl_channel_t *channel, psptl_place_t *place_p)
{
    const psptl_device_t *device = channel->device;

    *place_p = (psptl_place_t){
        .nid = device->self.phys.nid,
        .pid = device->self.phys.pid,
        .eager = device->eager.pt,
        .bulk = device->bulk.pt,
        .tag = device->tag.pt,
        .source = channel->source,
        .bits = channel->bits,
    };
    if (device->ni->softni_cookie)
        device->ni->softni_cookie(device->handle, place_p->secret);
}

void psptl_channel_connect(psptl_channel_t *channel, const psptl_place_t *peer)
{
    psptl_device_t *device = channel->device;

    channel->peer = *peer;
    channel->peer_id.phys.nid = peer->nid;
    channel->peer_id.phys.pid = peer->pid;
    channel->open = true;
    psc_list_push(&device->pending, &channel->pending);
    if (device->ni->softni_admit &&
        device->ni->softni_admit(device->handle, channel->peer_id,
                                 peer->secret) != PTL_OK)
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "the interface does not admit this peer");
    if (!psptl_tag_connect(channel))
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "no room for messages without receive "
                           "(PSP_PORTALS_RECVQ_SIZE, PSP_PORTALS_MATCHING)");
}

/* ---- ending ---- */

void psptl_channel_fail(psptl_channel_t *channel, psptl_verdict_t verdict,
                        const char *format, ...)
{
    char reason[PSPTL_REASON_MAX];
    va_list args;

    if (channel->failed)
        return;
    channel->failed = true;
    va_start(args, format);
    vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    if (channel->owner)
        channel->device->owner->failed(channel->owner, verdict, reason);
}

bool psptl_channel_idle(const psptl_channel_t *channel)
{
    return channel->n_flying == 0 && channel->n_waiting == 0 &&
           channel->n_bulks == 0 && channel->n_tags == 0;
}

void psptl_channel_abort(psptl_channel_t *channel)
{
    for (uint32_t i = 0; i < channel->n_sends; i++) {
        if (channel->sends[i].state == PSPTL_SEND_WAITING)
            channel->sends[i].state = PSPTL_SEND_FREE;
    }
    channel->n_waiting = 0;
    psc_list_remove(&channel->waiting);
    psptl_bulk_abort(channel);
    psptl_tag_abort(channel);
}

void psptl_channel_part(psptl_channel_t *channel)
{
    channel->parting = true;
    psc_list_remove(&channel->unsettled);
}

/* No events tell of it, so PTL_OK and an error are the same. */
static bool channel_ping_back(psptl_channel_t *channel)
{
    if (channel->ping_me != PTL_INVALID_HANDLE &&
        channel->device->ni->PtlMEUnlink(channel->ping_me) == PTL_IN_USE)
        return false;
    channel->ping_me = PTL_INVALID_HANDLE;
    return true;
}

static bool channel_fetch(psptl_device_t *device)
{
    return psptl_backlog_fetch(device, &device->eager) &&
           psptl_backlog_fetch(device, &device->tag);
}

/* False: the interface has not given back all entries. */
static bool channel_withdraw(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;
    bool all = channel_ping_back(channel);

    if (!channel_fetch(device))
        return false;
    for (uint32_t i = 0; i < channel->n_buffers; i++)
        psptl_buffer_unlink(&channel->buffers[i]);
    psptl_overflow_unlink(channel);
    psptl_tags_unlink(channel);
    if (!channel_fetch(device))
        return false;
    for (uint32_t i = 0; i < channel->n_buffers; i++)
        all &= psptl_buffer_back(&channel->buffers[i]);
    all &= psptl_overflow_back(channel);
    return psptl_tags_back(channel) && all;
}

/* Once: all that the interface had of a zombie is back. */
static void channel_settle(psptl_channel_t *channel)
{
    if (channel_withdraw(channel) && channel->n_flying == 0 &&
        channel->n_searching == 0) {
        channel->withdrawn_at = psc_clock_now();
        psptl_tag_source_leave(channel);
    }
}

void psptl_channel_destroy(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;

    psptl_channel_abort(channel);
    psptl_region_orphan(channel);
    channel->owner = NULL;
    channel->open = false;
    channel->failed = true;
    psc_list_remove(&channel->unsettled);
    psc_list_remove(&channel->link);
    psc_list_push(&device->zombies, &channel->link);
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
        psptl_tag_source_leave(channel);
    psc_list_remove(&channel->link);
    psc_list_remove(&channel->waiting);
    psc_list_remove(&channel->pending);
    psc_list_remove(&channel->unsettled);
    psptl_hold_free(channel);
    psptl_tag_free(channel);
    psptl_overflow_free(channel);
    free(channel->window.held);
    free(channel->sends);
    free(channel->buffers);
    free(channel->send_bytes);
    free(channel->buffer_bytes);
    free(channel);
}
