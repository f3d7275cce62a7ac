/* Changes of an endpoint's state, the events that each state watches, and the
 * hot socket.
 *
 * The socket that delivered last is likely to deliver next; it is called the
 * hot socket. It is read directly, without epoll_wait, which saves one of two
 * system calls. While it keeps delivering it is taken out of the epoll set,
 * because every byte that arrives at a socket in a set wakes that set and the
 * sets that contain it, at the sender's cost. The hot socket is put back into
 * the set before a thread sleeps on the set. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "tcp.h"

/* A socket that has become the hot socket is taken out of the epoll set after
 * this many more receives in a row. */
#define TCP_HOT_STREAK 16u

/* ---- states ---- */

static const char *tcp_state_name(tcp_state_t state)
{
    static const char *const names[TCP_N_STATES] = {
#define TCP_STATE_NAME(name, handler) #name,
        TCP_STATE_LIST(TCP_STATE_NAME)
#undef TCP_STATE_NAME
    };

    return names[state];
}

static psc_list_t *tcp_ep_list(const tcp_ep_t *ep, tcp_state_t state)
{
    return state < TCP_EP_UP || state == TCP_EP_FAILING
               ? &tcp_ep_iface(ep)->connecting
               : &tcp_ep_iface(ep)->settled;
}

void tcp_ep_enter(tcp_ep_t *ep, tcp_state_t state)
{
    tcp_iface_t *iface = tcp_ep_iface(ep);

    psc_iface_log(&iface->super, 4, "endpoint %016llx: %s -> %s",
                  (unsigned long long)ep->id, tcp_state_name(ep->state),
                  tcp_state_name(state));
    if (tcp_ep_list(ep, state) != tcp_ep_list(ep, ep->state)) {
        psc_list_remove(&ep->link);
        psc_list_push(tcp_ep_list(ep, state), &ep->link);
    }
    ep->state = state;
    if (state != TCP_EP_UP && iface->hot == ep)
        tcp_hot_set(iface, NULL);
    tcp_ep_watch(ep);
}

static psc_status_t tcp_ep_try_watch(tcp_ep_t *ep)
{
    static const uint32_t reads[TCP_N_STATES] = {
        [TCP_EP_CALLED] = EPOLLIN,
        [TCP_EP_AWAIT_ANSWER] = EPOLLIN,
        [TCP_EP_UP] = EPOLLIN,
        [TCP_EP_CLOSING] = EPOLLIN,
    };
    tcp_iface_t *iface = tcp_ep_iface(ep);
    bool sends = ep->state == TCP_EP_UP || ep->state == TCP_EP_CLOSING;
    uint32_t out = sends && !tcp_out_empty(&ep->out) ? EPOLLOUT : 0;
    uint32_t in = reads[ep->state];
    psc_status_t status;

    if (ep->aside)
        in = out = 0;
    if (ep->tx.fd < 0)
        return tcp_source_watch(iface, &ep->rx, in | out);
    status = tcp_source_watch(iface, &ep->tx, out);
    if (status != PSC_OK)
        return status;
    return tcp_source_watch(iface, &ep->rx, in);
}

void tcp_ep_watch(tcp_ep_t *ep)
{
    if (tcp_ep_try_watch(ep) != PSC_OK)
        tcp_ep_break(ep, PSC_ERR_TRANSPORT, "epoll: %s", strerror(errno));
}

/* ---- failing ---- */

void tcp_ep_break(tcp_ep_t *ep, psc_status_t status, const char *format, ...)
{
    va_list args;

    if (ep->state >= TCP_EP_FAILING)
        return;
    va_start(args, format);
    vsnprintf(ep->reason, sizeof(ep->reason), format, args);
    va_end(args);
    ep->status = status;
    tcp_ep_enter(ep, TCP_EP_FAILING);
    tcp_iface_wake_at(tcp_ep_iface(ep), 0);
}

/* ---- the hot socket ---- */

void tcp_hot_put_back(tcp_iface_t *iface)
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
