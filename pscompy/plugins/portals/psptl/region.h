/* Memory that peers may put to and get from: list entries with match bits of
 * their own, in which the peer chooses the offset, and which make no events at
 * the target. */
#pragma once

#include "driver.h"

/* Returns new match bits for a region or a channel. They are hard to guess and
 * never repeat. */
uint64_t psptl_device_bits(psptl_device_t *device);
/* Called when the channel is destroyed: its regions stay open, without a
 * channel. */
void psptl_region_detach(psptl_channel_t *channel);
/* Frees regions that were closed while a put or get used them, and that nothing
 * uses any more. */
void psptl_region_reap(psptl_device_t *device);
/* Frees all closed regions, after the interface was closed. */
void psptl_region_free_closed(psptl_device_t *device);
