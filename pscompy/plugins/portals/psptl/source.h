/* Sources: a channel has its messages matched by the interface if a number
 * among the match bits, its source, could be given to it. */
#pragma once

#include "driver.h"

/* Gives a new channel a source, or the reason why it has none. */
void psptl_source_take(psptl_channel_t *channel);
/* Called when the channel expects no more events. No other channel gets its
 * source until the channel is freed. */
void psptl_source_leave(psptl_channel_t *channel);
/* Called when the peer is known: the interface matches if both sides have a
 * source. Returns false if memory or entries are short. */
bool psptl_source_connect(psptl_channel_t *channel);
