/* The epoll set, whose descriptor the core sleeps on, and the alarm, a timer
 * whose descriptor is in this set. */
#include <sys/timerfd.h>
#include <unistd.h>

#include "tcp.h"

/* ---- sources ---- */

psc_status_t tcp_source_watch(tcp_iface_t *iface, tcp_source_t *source,
                              uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    int op = source->events == 0 ? EPOLL_CTL_ADD
             : events == 0       ? EPOLL_CTL_DEL
                                 : EPOLL_CTL_MOD;

    if (source->fd < 0 || source->events == events)
        return PSC_OK;
    if (epoll_ctl(iface->epoll_fd, op, source->fd, &event) < 0)
        return PSC_ERR_NO_MEMORY;
    source->events = events;
    return PSC_OK;
}

void tcp_source_close(tcp_iface_t *iface, tcp_source_t *source)
{
    if (source->fd < 0)
        return;
    (void)tcp_source_watch(iface, source, 0);
    close(source->fd);
    source->fd = -1;
    source->events = 0;
}

/* ---- waking ---- */

void tcp_iface_wake_at(tcp_iface_t *iface, int64_t when)
{
    struct itimerspec time = {
        .it_value = {.tv_sec = when / 1000000000, .tv_nsec = when % 1000000000},
    };

    if (when >= iface->alarm_at)
        return;
    iface->alarm_at = when;
    if (when <= 0)
        /* `when` has passed, so expire at once, but not by the value 0, which
         * would disarm the timer */
        time.it_value.tv_nsec = 1;
    timerfd_settime(iface->alarm.fd, TFD_TIMER_ABSTIME, &time, NULL);
}

int tcp_event_fd(psc_iface_t *self)
{
    return ((tcp_iface_t *)self)->epoll_fd;
}
