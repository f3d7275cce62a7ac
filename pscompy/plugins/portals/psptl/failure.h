/* Declares a channel as failed when it cannot continue. */
#pragma once

#include "driver.h"

#define PSPTL_NO_ANSWER "the peer's interface does not answer"

/* Marks the channel as failed, and notifies its owner, once. */
void psptl_channel_fail(psptl_channel_t *channel, psptl_verdict_t verdict,
                        const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Fails the channel if its patience_ns is not 0 and `fault`, the result of a
 * put or get, is PTL_NI_UNDELIVERABLE. Returns true if the channel has failed,
 * now or earlier. */
bool psptl_spare_failed(psptl_channel_t *channel, ptl_ni_fail_t fault);
/* Called when PtlPut or PtlGet has returned the error `status`. Fails the
 * channel, except after PTL_NO_SPACE: then the caller tries the operation
 * again. */
void psptl_put_failed(psptl_channel_t *channel, int status);
/* Returns the text for the ni_fail_type of an event, for error messages. */
const char *psptl_fault_name(ptl_ni_fail_t fault);
