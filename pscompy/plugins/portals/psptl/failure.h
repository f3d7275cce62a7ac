/* Failing a channel that cannot continue. */
#pragma once

#include "driver.h"

/* Fails the channel and notifies its owner, once. */
void psptl_channel_fail(psptl_channel_t *channel, psptl_verdict_t verdict,
                        const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Fails the channel because PtlPut or PtlGet returned `status`, except
 * PTL_NO_SPACE: the operation is tried again. */
void psptl_put_failed(psptl_channel_t *channel, int status);
/* The text of a fault of an event, for error messages. */
const char *psptl_fault_name(ptl_ni_fail_t fault);
