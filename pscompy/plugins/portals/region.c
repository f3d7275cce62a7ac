/* Memory that a peer may put to and get from: a matching entry with bits of
 * its own, which answers to explicit offsets and makes no events here. */
#include <stdlib.h>

#include "driver.h"
#include "pscompy/core/parts/clock.h"

#define REGION_CLOSE_TRIES 1000000u

typedef struct region {
    psptl_region_t super;
    psptl_channel_t *channel; /* whose it is; NULL: everybody's, or nobody's
                                 any more */
    psc_link_t link;          /* channel's regions */
    ptl_handle_me_t me;
} region_t;

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
    region = malloc(sizeof(*region));
    if (!region)
        return NULL;
    region->super = (psptl_region_t){psptl_device_bits(device), len};
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

/* In use means that something is being written, or read, this moment. */
void psptl_region_close(psptl_device_t *device, psptl_region_t *self)
{
    region_t *region = psc_container_of(self, region_t, super);

    for (unsigned i = 0; i < REGION_CLOSE_TRIES; i++) {
        if (device->ni->PtlMEUnlink(region->me) != PTL_IN_USE)
            break;
        psc_clock_pause();
    }
    region_leave(region);
    free(region);
}

void psptl_region_orphan(psptl_channel_t *channel)
{
    psc_list_for_each(region, &channel->regions, region_t, link)
        region_leave(region);
}
