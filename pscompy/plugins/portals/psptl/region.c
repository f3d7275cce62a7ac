/* Opening, revoking and closing regions. */
#include "channel.h"

#include <stdlib.h>

#include "pscompy/transport/kit/clock.h"

/* the longest time, in ns, for which closing a region waits until a peer's put
 * or get has ended */
#define REGION_CLOSE_NS 50000000ll

typedef struct region {
    psptl_region_t super;
    /* the channel whose peer may use the region; NULL if every peer may, or if
     * the channel was destroyed */
    psptl_channel_t *channel;
    psc_link_t link; /* link in the channel's list `regions` */
    psc_link_t busy; /* link in the device's list `busy_regions` */
    ptl_handle_me_t me;
    bool unlinked; /* the interface has given back the region's list entry */
    bool closed; /* the region is to be freed when its list entry is unlinked */
} region_t;

/* Returns a bijection of a counter that began at a random number (splitmix64,
 * Steele, Lea and Flood). */
uint64_t psptl_device_bits(psptl_device_t *device)
{
    uint64_t z = device->bits += 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static bool region_append(psptl_device_t *device, region_t *region, void *base)
{
    ptl_me_t me = {
        .start = base,
        .length = region->super.len,
        .ct_handle = PTL_CT_NONE,
        .uid = PTL_UID_ANY,
        .options = PTL_ME_OP_PUT | PTL_ME_OP_GET | PTL_ME_NO_TRUNCATE |
                   PTL_ME_EVENT_COMM_DISABLE | PTL_ME_EVENT_LINK_DISABLE |
                   PTL_ME_EVENT_UNLINK_DISABLE,
        .match_id = {.phys = {.nid = PTL_NID_ANY, .pid = PTL_PID_ANY}},
        .match_bits = region->super.bits,
    };

    if (region->channel && region->channel->open)
        me.match_id = region->channel->peer_id;
    return device->ni->PtlMEAppend(device->handle, device->bulk.pt, &me,
                                   PTL_PRIORITY_LIST, NULL,
                                   &region->me) == PTL_OK;
}

static void region_enter(region_t *region)
{
    psptl_channel_t *channel = region->channel;

    psc_list_init(&region->link);
    psc_list_init(&region->busy);
    if (!channel)
        return;
    channel->n_regions++;
    psc_list_push(&channel->regions, &region->link);
}

static void region_leave(region_t *region)
{
    psc_list_remove(&region->link);
    if (region->channel)
        region->channel->n_regions--;
    region->channel = NULL;
}

psptl_region_t *psptl_region_open(psptl_device_t *device,
                                  psptl_channel_t *channel, void *base,
                                  size_t len)
{
    region_t *region;

    if (channel && channel->n_regions >= device->settings.regions) {
        psptl_count(channel, PSPTL_COUNTER_regions_refused);
        return NULL;
    }
    region = calloc(1, sizeof(*region));
    if (!region)
        return NULL;
    region->super = (psptl_region_t){psptl_device_bits(device), len, base};
    region->channel = channel;
    if (!region_append(device, region, base)) {
        free(region);
        return NULL;
    }
    region_enter(region);
    if (channel)
        psptl_count(channel, PSPTL_COUNTER_regions);
    else
        psptl_device_count(device, PSPTL_COUNTER_regions);
    return &region->super;
}

/* ---- revoking ---- */

/* Unlinks the list entry of a region. PTL_IN_USE means that a put or get of a
 * peer is in progress in the region. */
static bool region_unlink(psptl_device_t *device, region_t *region)
{
    if (!region->unlinked)
        region->unlinked = device->ni->PtlMEUnlink(region->me) != PTL_IN_USE;
    return region->unlinked;
}

static void region_wait(psptl_device_t *device, region_t *region)
{
    int64_t deadline = psc_clock_deadline(REGION_CLOSE_NS);

    while (!region_unlink(device, region) && psc_clock_now() < deadline)
        psc_clock_pause();
}

bool psptl_region_revoke(psptl_device_t *device, psptl_region_t *self)
{
    region_t *region = psc_container_of(self, region_t, super);

    psc_list_remove(&region->busy);
    if (region_unlink(device, region))
        return true;
    psc_list_push(&device->busy_regions, &region->busy);
    return false;
}

static void region_free(region_t *region)
{
    psc_list_remove(&region->busy);
    free(region);
}

bool psptl_region_close(psptl_device_t *device, psptl_region_t *self)
{
    region_t *region = psc_container_of(self, region_t, super);

    region_leave(region);
    if (!region_unlink(device, region))
        region_wait(device, region);
    if (psptl_region_revoke(device, self)) {
        region_free(region);
        return true;
    }
    region->closed = true;
    return false;
}

void psptl_region_reap(psptl_device_t *device)
{
    psc_list_for_each(region, &device->busy_regions, region_t, busy) {
        if (region->closed && region_unlink(device, region))
            region_free(region);
    }
}

void psptl_region_free_closed(psptl_device_t *device)
{
    psc_list_for_each(region, &device->busy_regions, region_t, busy) {
        if (region->closed)
            region_free(region);
    }
}

void psptl_region_detach(psptl_channel_t *channel)
{
    psc_list_for_each(region, &channel->regions, region_t, link)
        region_leave(region);
}
