/* Failing a channel, and the text of its reason. */
#include "channel.h"

#include <stdarg.h>
#include <stdio.h>

void psptl_channel_fail(psptl_channel_t *channel, psptl_verdict_t verdict,
                        const char *format, ...)
{
    char reason[PSPTL_REASON_MAX];
    va_list args;

    if (channel->failed)
        return;
    channel->failed = true;
    va_start(args, format);
    vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    if (channel->owner)
        channel->device->owner->failed(channel->owner, verdict, reason);
}

bool psptl_spare_failed(psptl_channel_t *channel, ptl_ni_fail_t fault)
{
    if (channel->patience_ns > 0 && fault == PTL_NI_UNDELIVERABLE)
        psptl_channel_fail(channel, PSPTL_LOST, PSPTL_NO_ANSWER);
    return channel->failed;
}

void psptl_put_failed(psptl_channel_t *channel, int status)
{
    if (status != PTL_NO_SPACE)
        psptl_channel_fail(channel, PSPTL_BROKEN,
                           "the interface takes no put or get (error %d)",
                           status);
}

const char *psptl_fault_name(ptl_ni_fail_t fault)
{
    switch (fault) {
    case PTL_NI_OK:
        return "cut short";
    case PTL_NI_UNDELIVERABLE:
        return "undeliverable";
    case PTL_NI_PT_DISABLED:
        return "portal table entry disabled";
    case PTL_NI_DROPPED:
        return "dropped by the target";
    case PTL_NI_PERM_VIOLATION:
        return "not permitted";
    case PTL_NI_OP_VIOLATION:
        return "operation not allowed";
    case PTL_NI_SEGV:
        return "memory that cannot be reached";
    default:
        return "failed";
    }
}
