/* Sleeping: one epoll descriptor for the completion channel, the device's
 * asynchronous events and a clock (timer). A completion raises an event only if
 * an event was requested since the last one. */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "ib.h"
#include "pscompy/transport/kit/restart.h"

enum { IB_RECEIVING, IB_SENDING };

/* The descriptors in the epoll set, any of which wakes us. */
typedef enum ib_wakeup {
    IB_WAKEUP_COMPLETIONS,
    IB_WAKEUP_DEVICE,
    IB_WAKEUP_CLOCK,
    IB_N_WAKEUPS
} ib_wakeup_t;

static bool ib_sleep_watch(ib_iface_t *iface, int fd, ib_wakeup_t wakeup)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = wakeup}};

    return fd >= 0 && epoll_ctl(iface->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

psc_status_t ib_sleep_open(ib_iface_t *iface)
{
    iface->epoll = epoll_create1(EPOLL_CLOEXEC);
    return iface->epoll >= 0 &&
                   psc_kit_eps_open(&iface->eps,
                                    iface->settings.keepalive_ns) &&
                   ib_sleep_watch(iface, iface->eps.clock, IB_WAKEUP_CLOCK) &&
                   ib_sleep_watch(iface, iface->device.channel->fd,
                                  IB_WAKEUP_COMPLETIONS) &&
                   ib_sleep_watch(iface, iface->device.context->async_fd,
                                  IB_WAKEUP_DEVICE)
               ? PSC_OK
               : PSC_ERR_TRANSPORT;
}

void ib_sleep_close(ib_iface_t *iface)
{
    psc_kit_eps_close(&iface->eps);
    if (iface->epoll >= 0)
        close(iface->epoll);
}

static void ib_sleep_tick(ib_iface_t *iface)
{
    if (psc_kit_eps_tick(&iface->eps, "PSP_IB_CONNECT_TIMEOUT", ib_ep_ask))
        ib_cache_sweep(&iface->cache);
}

/* ---- events ---- */

/* Takes one event of the completion channel. If there are more, the channel's
 * descriptor stays readable. */
static void ib_sleep_completions(ib_iface_t *iface)
{
    struct ibv_cq *cq;
    void *context;

    if (ibv_get_cq_event(iface->device.channel, &cq, &context) != 0)
        return;
    iface->notices[cq == iface->device.send_cq] = IB_NOTICE_NONE;
    ibv_ack_cq_events(cq, 1);
}

/* Fails all connections over a device that has reported a fatal error. */
static void ib_sleep_lost(ib_iface_t *iface)
{
    psc_list_for_each(kit, &iface->eps.endpoints, psc_kit_ep_t, link)
        psc_kit_ep_fail(kit, PSC_ERR_TRANSPORT, "the device has failed");
}

/* Logs the asynchronous events of the device. Only a fatal event ends
 * connections: while a port is down, a connection ends when its queue pair has
 * used up its retries. */
static void ib_sleep_device(ib_iface_t *iface)
{
    struct ibv_async_event event;

    while (ibv_get_async_event(iface->device.context, &event) == 0) {
        psc_iface_log(&iface->super, 2, "the device reports: %s",
                      ibv_event_type_str(event.event_type));
        if (event.event_type == IBV_EVENT_DEVICE_FATAL)
            ib_sleep_lost(iface);
        ibv_ack_async_event(&event);
    }
}

void ib_sleep_look(ib_iface_t *iface)
{
    static void (*const answers[IB_N_WAKEUPS])(ib_iface_t *) = {
        [IB_WAKEUP_COMPLETIONS] = ib_sleep_completions,
        [IB_WAKEUP_DEVICE] = ib_sleep_device,
        [IB_WAKEUP_CLOCK] = ib_sleep_tick,
    };
    struct epoll_event events[IB_N_WAKEUPS];
    int n = PSC_RESTART(epoll_wait(iface->epoll, events, IB_N_WAKEUPS, 0));

    iface->armed = false;
    iface->polls = 0;
    for (int i = 0; i < n; i++)
        answers[events[i].data.u32](iface);
}

int ib_event_fd(psc_iface_t *self)
{
    return ib_iface(self)->epoll;
}

/* ---- arming ---- */

static psc_status_t ib_notice_want(ib_iface_t *iface, int which,
                                   ib_notice_t notice)
{
    struct ibv_cq *cq =
        which == IB_SENDING ? iface->device.send_cq : iface->device.recv_cq;

    if (iface->notices[which] >= notice)
        return PSC_OK;
    if (ibv_req_notify_cq(cq, notice == IB_NOTICE_ERRORS) != 0)
        return PSC_ERR_TRANSPORT;
    iface->notices[which] = notice;
    return PSC_OK;
}

/* Returns true if a completion had arrived before an event was requested for
 * the queue. Such a completion raises no event, so the queue is polled once for
 * it. */
static bool ib_arm_missed(ib_iface_t *iface, struct ibv_cq *cq)
{
    if (ibv_poll_cq(cq, 1, &iface->early) <= 0)
        return false;
    iface->early_cq = cq;
    return true;
}

psc_status_t ib_arm(psc_iface_t *self)
{
    ib_iface_t *iface = ib_iface(self);
    bool waiting = iface->n_starving > 0 || iface->eps.n_connecting > 0 ||
                   iface->eps.n_closed > 0;
    ib_notice_t notice = waiting ? IB_NOTICE_ALL : IB_NOTICE_ERRORS;

    iface->armed = true;
    if (!psc_list_empty(&iface->eps.failing) || iface->early_cq)
        return PSC_ERR_NO_RESOURCE;
    if (ib_notice_want(iface, IB_RECEIVING, IB_NOTICE_ALL) != PSC_OK ||
        ib_notice_want(iface, IB_SENDING, notice) != PSC_OK ||
        ib_arm_missed(iface, iface->device.recv_cq) ||
        ib_arm_missed(iface, iface->device.send_cq))
        return PSC_ERR_NO_RESOURCE;
    return PSC_OK;
}
