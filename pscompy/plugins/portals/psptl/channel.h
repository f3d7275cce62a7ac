/* Freeing destroyed channels. The other functions of channel.c are declared in
 * psptl.h. */
#pragma once

#include "driver.h"

/* Frees zombies (destroyed channels) to whose memory the interface does not
 * write any more. */
void psptl_channel_reap(psptl_device_t *device);
/* Returns the number of zombies (destroyed channels) to whose memory the
 * interface may still write. */
unsigned psptl_channel_held(const psptl_device_t *device);
/* Frees a channel at once; the interface must no longer use its memory. */
void psptl_channel_free(psptl_channel_t *channel);
