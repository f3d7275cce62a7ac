/* Sources, which are numbers of channels in match bits. The interface matches
 * the messages of a channel to receives only if the channel could be given a
 * source. */
#pragma once

#include "driver.h"

/* Gives a new channel a source, or stores the reason why it has none in
 * `matching.flaw`. */
void psptl_source_take(psptl_channel_t *channel);
/* Called when the channel expects no more events: its source no longer counts
 * in the device's n_sources. No other channel gets the source until the channel
 * is freed. */
void psptl_source_leave(psptl_channel_t *channel);
/* Called when the peer is known: the interface matches messages of the channel
 * if both sides have given it a source. Returns false if memory or list entries
 * are short. */
bool psptl_source_connect(psptl_channel_t *channel);
