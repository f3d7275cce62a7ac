/* Sleeping: one epoll descriptor, which contains the descriptors of the event
 * queues, a periodic timer for the endpoints, and an alarm for resends and
 * revocations. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "portals.h"
#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/kit/restart.h"

static bool portals_sleep_watch(portals_iface_t *iface, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return fd >= 0 && epoll_ctl(iface->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

psc_status_t portals_sleep_open(portals_iface_t *iface)
{
    int fds[PSPTL_FDS];

    iface->epoll = epoll_create1(EPOLL_CLOEXEC);
    iface->alarm = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (iface->epoll < 0 ||
        !psc_kit_eps_open(&iface->eps, iface->settings.keepalive_ns) ||
        !portals_sleep_watch(iface, iface->eps.clock) ||
        !portals_sleep_watch(iface, iface->alarm))
        return PSC_ERR_TRANSPORT;
    iface->n_fds = psptl_device_fds(iface->device, fds);
    for (unsigned i = 0; i < iface->n_fds; i++) {
        if (!portals_sleep_watch(iface, fds[i]))
            return PSC_ERR_TRANSPORT;
    }
    return PSC_OK;
}

void portals_sleep_close(portals_iface_t *iface)
{
    if (iface->alarm >= 0)
        close(iface->alarm);
    psc_kit_eps_close(&iface->eps);
    if (iface->epoll >= 0)
        close(iface->epoll);
}

/* ---- timers ---- */

/* Asks whether the peer is alive: its interface acknowledges a ping as long as
 * its process exists, even while the process computes. */
static void portals_ep_ask(psc_kit_ep_t *kit)
{
    psptl_channel_ping(portals_ep(&kit->super)->channel);
}

/* Sets the alarm to the driver's next deadline. A library without file
 * descriptors is polled every PORTALS_POLL_NS, too. */
void portals_sleep_until(portals_iface_t *iface)
{
    int64_t due = psptl_device_deadline(iface->device);
    struct itimerspec time = {.it_value = {0, 0}};

    if (iface->n_fds == 0) {
        int64_t glance = psc_clock_deadline(PORTALS_POLL_NS);

        due = glance < due ? glance : due;
    }
    if (due == iface->alarm_ns)
        return;
    iface->alarm_ns = due;
    if (due != INT64_MAX)
        time.it_value = (struct timespec){due / 1000000000, due % 1000000000};
    timerfd_settime(iface->alarm, TFD_TIMER_ABSTIME, &time, NULL);
}

void portals_sleep_look(portals_iface_t *iface)
{
    uint64_t rings;

    iface->armed = false;
    iface->polls = 0;
    if (iface->alarm_ns != INT64_MAX &&
        PSC_RESTART(read(iface->alarm, &rings, sizeof(rings))) == sizeof(rings))
        iface->alarm_ns = INT64_MAX;
    psc_kit_eps_tick(&iface->eps, "PSP_PORTALS_CONNECT_TIMEOUT",
                     portals_ep_ask);
}

/* ---- arming ---- */

int portals_event_fd(psc_iface_t *self)
{
    return portals_iface(self)->epoll;
}

psc_status_t portals_arm(psc_iface_t *self)
{
    portals_iface_t *iface = portals_iface(self);

    iface->armed = true;
    if (!psc_list_empty(&iface->eps.failing) ||
        (iface->n_fds > 0 && !psptl_device_arm(iface->device)))
        return PSC_ERR_NO_RESOURCE;
    portals_sleep_until(iface);
    return PSC_OK;
}
