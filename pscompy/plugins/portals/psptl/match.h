/* Events of the messages that the interface matches to posted receives.
 *
 * A message without a receive is searched out of the overflow list as soon as
 * its event arrives, by its exact bits, and delivered in its turn. A receive
 * that is posted before that finds the message in the list. From the search
 * until it is delivered a message is in no list; while there is such a message,
 * receives are held, because they might miss it. If there are fewer overflow
 * buffers than messages in flight, a message must not keep an overflow buffer
 * until its turn, because an earlier message may need the buffer. So the
 * message is moved to a new buffer. */
#pragma once

#include "driver.h"

/* Handles an event from the event queue of the portal table entry `tag`
 * (psptl.h). */
void psptl_match_event(const ptl_event_t *event);
/* Gives up matching on the channel: every receive that has matched a message
 * that is not delivered yet, or that matches one later, is reported as lost. */
void psptl_match_abort(psptl_channel_t *channel);
