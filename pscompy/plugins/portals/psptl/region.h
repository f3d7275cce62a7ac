/* Memory that peers may put to and get from: entries with match bits of their
 * own, explicit offsets, and no events at the target. */
#ifndef PSCOMPY_PORTALS_REGION_H
#define PSCOMPY_PORTALS_REGION_H

#include "driver.h"

/* New match bits of a region or a channel: unlikely to be guessed, and never
 * the same twice. */
uint64_t psptl_device_bits(psptl_device_t *device);
/* The regions of a channel that is destroyed stay, and belong to nobody. */
void psptl_region_detach(psptl_channel_t *channel);
/* Frees regions that were closed in use and are not in use any more. */
void psptl_region_reap(psptl_device_t *device);
/* Frees all closed regions, after the interface was closed. */
void psptl_region_free_closed(psptl_device_t *device);

#endif
