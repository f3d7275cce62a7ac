/* Posting and unlinking the buffers of the receive ring. */
#include "receive.h"

#include "backlog.h"

bool psptl_buffer_post(psptl_buffer_t *buffer)
{
    psptl_channel_t *channel = buffer->channel;
    psptl_device_t *device = channel->device;
    ptl_me_t me = psptl_me_once(channel, buffer->bytes,
                                device->settings.buffer_size, channel->bits);

    buffer->op.unlinked = false;
    buffer->posted = device->ni->PtlMEAppend(
                         device->handle, device->eager.pt, &me,
                         PTL_PRIORITY_LIST, &buffer->op, &buffer->me) == PTL_OK;
    return buffer->posted;
}

void psptl_buffer_unlink(psptl_buffer_t *buffer)
{
    if (buffer->posted)
        psptl_op_unlink(buffer->channel->device, &buffer->op, buffer->me, 1);
}

bool psptl_buffer_back(psptl_buffer_t *buffer)
{
    if (psptl_op_back(&buffer->op))
        buffer->posted = false;
    return !buffer->posted;
}
