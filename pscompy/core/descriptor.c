#include "worker.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "pscompy/transport/kit/restart.h"

void psc_descriptor_signal(int fd)
{
    uint64_t one = 1;

    if (PSC_RESTART(write(fd, &one, sizeof one)) < 0 && errno != EAGAIN)
        abort(); /* our eventfd fails only if it was closed */
}

void psc_descriptor_clear(int fd)
{
    uint64_t ignored;

    if (PSC_RESTART(read(fd, &ignored, sizeof ignored)) < 0 && errno != EAGAIN)
        abort(); /* our eventfd fails only if it was closed */
}

int psc_descriptor_watch(int set, int fd, uint32_t events, uint32_t ifaces)
{
    struct epoll_event event = {.events = events, .data.u32 = ifaces};

    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}
