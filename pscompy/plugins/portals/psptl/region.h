/* Memory that peers may put to and get from: entries with match bits of their
 * own, explicit offsets, and no events at the target. */
#pragma once

#include "driver.h"

/* Returns new match bits for a region or a channel. They are hard to guess and
 * never repeat. */
uint64_t psptl_device_bits(psptl_device_t *device);
/* Detaches the regions of a channel that is destroyed. The regions stay
 * open. */
void psptl_region_detach(psptl_channel_t *channel);
/* Frees regions that were closed while in use and are no longer in use. */
void psptl_region_reap(psptl_device_t *device);
/* Frees all closed regions, after the interface was closed. */
void psptl_region_free_closed(psptl_device_t *device);
