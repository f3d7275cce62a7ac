/* The operations table, and the life of an interface: opening, progress, its
 * alarm, shutting down. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "tcp.h"
#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/kit/restart.h"

/* in every eighth call progress polls all sockets, not only the hot one */
#define TCP_HOT_TURNS 8u

/* ---- the alarm ---- */

static void tcp_alarm_ready(tcp_source_t *source, uint32_t events)
{
    tcp_iface_t *iface = psc_container_of(source, tcp_iface_t, alarm);
    int64_t now = psc_clock_now();
    uint64_t rings;

    (void)events;
    if (PSC_RESTART(read(source->fd, &rings, sizeof(rings))) < 0)
        /* tcp_iface_wake_at has set the timer again after it had expired */
        return;
    iface->alarm_at = TCP_NEVER;
    tcp_iface_wake_at(iface, tcp_listener_expire(iface, now));
    tcp_iface_wake_at(iface, tcp_connect_expire(iface, now));
    tcp_iface_wake_at(iface, tcp_rails_expire(iface, now));
}

static psc_status_t tcp_alarm_open(tcp_iface_t *iface)
{
    iface->alarm = (tcp_source_t){.ready = tcp_alarm_ready};
    iface->alarm.fd =
        timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (iface->alarm.fd < 0)
        return PSC_ERR_TRANSPORT;
    iface->alarm_at = TCP_NEVER;
    return tcp_source_watch(iface, &iface->alarm, EPOLLIN);
}

/* ---- open and query ---- */

static psc_status_t tcp_iface_start(tcp_iface_t *iface,
                                    const psc_open_params_t *params)
{
    iface->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (iface->epoll_fd < 0 || tcp_alarm_open(iface) != PSC_OK) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "cannot open the descriptors to wait with: %s",
                 strerror(errno));
        return PSC_ERR_TRANSPORT;
    }
    if (tcp_address_choose(iface, params->reason) != PSC_OK)
        return PSC_ERR_TRANSPORT;
    iface->settings.paced = iface->paths > 1;
    return tcp_listener_open(iface, params->reason);
}

static void tcp_iface_free(tcp_iface_t *iface)
{
    tcp_listener_close(iface);
    tcp_source_close(iface, &iface->alarm);
    if (iface->epoll_fd >= 0)
        close(iface->epoll_fd);
    tcp_callers_free(iface);
    free(iface);
}

static const psc_transport_ops_t tcp_ops; /* defined at the end of this file */

static tcp_iface_t *tcp_iface_create(const psc_open_params_t *params)
{
    tcp_iface_t *iface = calloc(1, sizeof(*iface));

    if (!iface)
        return NULL;
    iface->super.ops = &tcp_ops;
    iface->super.up = params->up;
    iface->super.user = params->user;
    iface->path = params->path;
    iface->epoll_fd = iface->alarm.fd = iface->listener.fd = -1;
    iface->rx_ready = tcp_ep_ready;
    iface->tx_ready = tcp_ep_writable;
    psc_list_init(&iface->connecting);
    psc_list_init(&iface->settled);
    psc_list_init(&iface->graveyard);
    psc_list_init(&iface->callers);
    psc_list_init(&iface->vacant);
    return iface;
}

static psc_status_t tcp_open(const psc_open_params_t *params,
                             psc_iface_t **iface_p)
{
    tcp_iface_t *iface = tcp_iface_create(params);
    psc_status_t status;

    if (!iface) {
        snprintf(params->reason, PSC_REASON_MAX, "out of memory");
        return PSC_ERR_NO_MEMORY;
    }
    status = tcp_settings_read(params, &iface->settings);
    if (status == PSC_OK)
        status = tcp_iface_start(iface, params);
    if (status != PSC_OK) {
        tcp_iface_free(iface);
        return status;
    }
    *iface_p = &iface->super;
    return PSC_OK;
}

static void tcp_query(psc_iface_t *self, psc_iface_attr_t *attr_p)
{
    const tcp_iface_t *iface = (const tcp_iface_t *)self;

    *attr_p = (psc_iface_attr_t){
        .caps =
            PSC_CAP_AM_SHORT | PSC_CAP_AM_ZCOPY | PSC_CAP_EVENT | PSC_CAP_EOF,
        .max_short = TCP_SHORT_MAX,
        .max_bcopy = iface->settings.buffer_size,
        .max_zcopy = TCP_ZCOPY_MAX,
        /* The smallest zero-copy message. The kernel copies the bytes in both
         * cases; zero-copy saves the copy into the out-ring when the socket is
         * full. */
        .min_zcopy = 4096,
        .max_iov = TCP_IOV_MAX,
        .latency_ns = 10e3,
        .overhead_ns = 2e3,
        .bandwidth = 4e9,
        .copy_bandwidth = 3e9,
        .poll_ns = 600,
        .paths = iface->settings.bound ? iface->paths : 1,
        .rail = iface->rail,
    };
}

/* ---- progress ---- */

/* Reads the hot socket (the one that received last). While it is out of the
 * epoll set it raises no EPOLLOUT, so the endpoint's queue is sent here,
 * too. */
static void tcp_hot_serve(tcp_ep_t *ep)
{
    bool flush = ep->aside && !tcp_out_empty(&ep->out);

    ep->rx.ready(&ep->rx, flush ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void tcp_iface_poll(tcp_iface_t *iface)
{
    struct epoll_event events[TCP_EVENTS_MAX];
    int n = PSC_RESTART(epoll_wait(iface->epoll_fd, events, TCP_EVENTS_MAX, 0));

    for (int i = 0; i < n; i++) {
        tcp_source_t *source = events[i].data.ptr;

        /* skip a source that the handler of an earlier event has closed */
        if (source->fd >= 0)
            source->ready(source, events[i].events);
    }
}

static void tcp_iface_bury(tcp_iface_t *iface)
{
    psc_link_t *link;

    while ((link = psc_list_pop(&iface->graveyard)))
        tcp_ep_free(psc_container_of(link, tcp_ep_t, link));
}

static bool tcp_iface_poll_due(tcp_iface_t *iface)
{
    const tcp_ep_t *hot = iface->hot;

    if (!hot || ++iface->turns % TCP_HOT_TURNS == 0)
        return true;
    return !hot->aside && (iface->handled == 0 || !tcp_out_empty(&hot->out));
}

static unsigned tcp_progress(psc_iface_t *self)
{
    tcp_iface_t *iface = (tcp_iface_t *)self;

    if (iface->in_progress)
        return 0;
    iface->in_progress = true;
    iface->handled = 0;
    if (iface->hot)
        tcp_hot_serve(iface->hot);
    if (tcp_iface_poll_due(iface))
        tcp_iface_poll(iface);
    iface->in_progress = false;
    tcp_iface_bury(iface);
    return iface->handled;
}

uint32_t tcp_iface_counters(const psc_iface_t *self, psc_counted_t *counters,
                            uint32_t room)
{
    const tcp_iface_t *iface = (const tcp_iface_t *)self;

    if (room < 2)
        return 0;
    counters[0] = (psc_counted_t){"tcp_callers", iface->n_callers};
    counters[1] = (psc_counted_t){"tcp_holding", iface->n_holding};
    return 2;
}

/* Puts the hot socket (read without epoll until now) back into the epoll set.
 * The set then reports all sockets that have work, until the work is done. */
psc_status_t tcp_arm(psc_iface_t *self)
{
    tcp_hot_put_back((tcp_iface_t *)self);
    return PSC_OK;
}

/* ---- shutting down ---- */

static void tcp_close(psc_iface_t *self)
{
    tcp_listener_close((tcp_iface_t *)self);
}

static void tcp_bury_list(psc_list_t *list)
{
    while (!psc_list_empty(list))
        tcp_ep_fini(&psc_container_of(list->next, tcp_ep_t, link)->super);
}

static void tcp_fini(psc_iface_t *self)
{
    tcp_iface_t *iface = (tcp_iface_t *)self;

    tcp_bury_list(&iface->connecting);
    tcp_bury_list(&iface->settled);
    tcp_iface_free(iface);
}

static const psc_transport_ops_t tcp_ops = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_transport_ops_t),
    .name = "tcp",
    .open = tcp_open,
    .query = tcp_query,
    .progress = tcp_progress,
    .close = tcp_close,
    .stop = psc_kit_stop,
    .fini = tcp_fini,
    .ep_create = tcp_ep_create,
    .ep_address = tcp_ep_address,
    .ep_connect = tcp_ep_connect,
    .ep_close = tcp_ep_close,
    .ep_stop = tcp_ep_stop,
    .ep_fini = tcp_ep_fini,
    .am_bcopy = tcp_am_bcopy,
    .am_short = tcp_am_short,
    .am_zcopy = tcp_am_zcopy,
    .event_fd = tcp_event_fd,
    .arm = tcp_arm,
    .iface_counters = tcp_iface_counters,
};

/* The only symbol that this library exports: returns the address of the
 * operations table. */
uintptr_t tcp_transport(void);

uintptr_t tcp_transport(void)
{
    return (uintptr_t)&tcp_ops;
}
