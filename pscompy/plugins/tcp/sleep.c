/* Which sockets are looked at, and when; and sleeping on all of them.
 *
 * Who sent last probably sends next, so that one's socket, the hot one, is
 * read without asking epoll first: one system call of two. While it goes on
 * sending it is not in the set at all, since every byte that arrives at a
 * socket in a set wakes that set, and those in which the set is: the sender
 * pays for it. Before anybody sleeps it is put back. */
#include <unistd.h>

#include "tcp.h"

#define TCP_HOT_TURNS 8u   /* one of so many passes looks at the others too */
#define TCP_HOT_STREAK 16u /* receives in a row before it leaves the set */

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

/* ---- the hot one ---- */

static void tcp_hot_put_back(tcp_iface_t *iface)
{
    tcp_ep_t *ep = iface->hot;

    iface->streak = 0;
    if (!ep || !ep->aside)
        return;
    ep->aside = false;
    tcp_ep_watch(ep);
}

void tcp_hot_set(tcp_iface_t *iface, tcp_ep_t *ep)
{
    if (iface->hot != ep) {
        tcp_hot_put_back(iface);
        iface->hot = ep;
    } else if (++iface->streak == TCP_HOT_STREAK) {
        ep->aside = true;
        tcp_ep_watch(ep);
    }
}

/* In the set, its room for more would have been told. */
static void tcp_hot_serve(tcp_ep_t *ep)
{
    bool flush = ep->aside && !tcp_out_empty(&ep->out);

    tcp_ep_ready(&ep->rx, flush ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* ---- progress ---- */

static void tcp_iface_poll(tcp_iface_t *iface)
{
    struct epoll_event events[TCP_EVENTS_MAX];
    int n = epoll_wait(iface->epoll_fd, events, TCP_EVENTS_MAX, 0);

    for (int i = 0; i < n; i++) {
        tcp_source_t *source = events[i].data.ptr;

        if (source->fd >= 0) /* not closed by an earlier event */
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

unsigned tcp_progress(psc_iface_t *self)
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

/* ---- waking ---- */

int tcp_event_fd(psc_iface_t *self)
{
    return ((tcp_iface_t *)self)->epoll_fd;
}

/* Whatever is to be done is then visible in the set, and stays so until it is
 * done. */
psc_status_t tcp_arm(psc_iface_t *self)
{
    tcp_hot_put_back((tcp_iface_t *)self);
    return PSC_OK;
}
