/* The descriptor (eventfd) on which the core sleeps. */
#include <unistd.h>

#include "loop.h"
#include "pscompy/transport/kit/restart.h"

/* Wakes the core, because progress has work. Makes a system call only if the
 * core may sleep. */
void loop_iface_wake(loop_iface_t *iface)
{
    const uint64_t one = 1;

    if (!iface->armed)
        return;
    iface->armed = false;
    iface->rung =
        PSC_RESTART(write(iface->event_fd, &one, sizeof(one))) == sizeof(one);
}

int loop_event_fd(psc_iface_t *self)
{
    return ((loop_iface_t *)self)->event_fd;
}

psc_status_t loop_arm(psc_iface_t *self)
{
    loop_iface_t *iface = (loop_iface_t *)self;

    if (!psc_list_empty(&iface->queue) || iface->n_notices > 0 || iface->rung)
        return PSC_ERR_NO_RESOURCE;
    iface->armed = true;
    return PSC_OK;
}
