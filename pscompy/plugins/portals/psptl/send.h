/* Sending messages. Each stays in its buffer until it is acknowledged. A
 * message that did not arrive is put again after a while. New messages wait
 * until then, and are put after it. A portal table entry that flow control has
 * disabled is enabled again by the receiving driver, so attempts at a disabled
 * entry are not counted; for other faults PSP_PORTALS_RETRY_COUNT is the
 * limit. */
#pragma once

#include "driver.h"

void psptl_send_event(psptl_send_t *send, const ptl_event_t *event);
/* Called when an attempt to put a message has failed with `fault`. Returns true
 * if the message may be put again, and false if the channel has failed. If the
 * portal table entry was disabled, the attempt is not counted. After another
 * fault the channel fails at once (psptl_spare_failed), or the attempt is
 * counted in *drops, and the channel fails if it was the last one allowed. */
bool psptl_send_may_retry(psptl_channel_t *channel, ptl_ni_fail_t fault,
                          uint32_t *drops);
/* Sets sending.retry_at, the time at which the channel's failed puts are
 * repeated. The wait grows with each failure, but only once for all puts that
 * were in flight together. */
void psptl_send_back_off(psptl_channel_t *channel);
/* Puts the messages in the state WAITING whose time to be put has come. */
void psptl_send_again(psptl_device_t *device);
/* Returns the nanoseconds to wait before the next put after this many failed
 * attempts. */
int64_t psptl_backoff(unsigned attempts);
void psptl_ping_event(psptl_channel_t *channel, const ptl_event_t *event);
