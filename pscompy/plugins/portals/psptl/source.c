/* Gives channels their sources, which are their numbers in match bits, and
 * decides on which channels the interface matches messages to receives. */
#include "channel.h"

#include "match.h"

#define SOURCES 0xffffu
/* maximum number of events that one message makes in the event queue of its
 * receiver */
#define SOURCE_EVENTS 3u

static bool source_used(psptl_device_t *device, uint32_t source)
{
    psc_list_for_each(channel, &device->channels, psptl_channel_t, link) {
        if (channel->matching.source == source)
            return true;
    }
    psc_list_for_each(channel, &device->zombies, psptl_channel_t, link) {
        if (channel->matching.source == source)
            return true;
    }
    return false;
}

void psptl_source_take(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;
    const psptl_settings_t *settings = &device->settings;
    uint64_t events = (uint64_t)SOURCE_EVENTS * settings->recvq;

    if (!settings->matching) {
        channel->matching.flaw = "PSP_PORTALS_MATCHING=0";
    } else if (device->n_sources >= SOURCES) {
        channel->matching.flaw =
            "more connections than the match bits can distinguish";
    } else if ((device->n_sources + 1) * events > device->flying_max) {
        channel->matching.flaw = "more connections than the event queue has "
                                 "room for (PSP_PORTALS_EQ_SIZE)";
    } else {
        do
            device->last_source = device->last_source % SOURCES + 1;
        while (source_used(device, device->last_source));
        channel->matching.source = device->last_source;
        device->n_sources++;
    }
}

void psptl_source_leave(psptl_channel_t *channel)
{
    channel->device->n_sources -= channel->matching.source > 0;
}

bool psptl_source_connect(psptl_channel_t *channel)
{
    if (!channel->matching.source)
        return true;
    if (channel->peer.source)
        return psptl_buffers_make(channel, &channel->matching.overflows,
                                  PSPTL_OVERFLOW,
                                  channel->device->settings.overflows) &&
               psptl_buffers_post(&channel->matching.overflows);
    channel->matching.flaw = "the peer does not match in its interface";
    return true;
}

const char *psptl_tag_flaw(const psptl_channel_t *channel)
{
    return channel->matching.flaw;
}
