/* A channel's life. Most of it is in psptl.h. */
#pragma once

#include "driver.h"

/* Frees zombies to which the interface does not write any more. */
void psptl_channel_reap(psptl_device_t *device);
/* Returns the number of zombies to which the interface may still write. */
unsigned psptl_channel_held(const psptl_device_t *device);
/* Frees a channel at once, after the interface was closed. */
void psptl_channel_free(psptl_channel_t *channel);
