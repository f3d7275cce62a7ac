/* Endpoints: creating, the door between their stages, failing, closing. */
#include <errno.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "pscompy/transport/kit/clock.h"
#include "tcp.h"

static tcp_iface_t *tcp_ep_iface(const tcp_ep_t *ep)
{
    return (tcp_iface_t *)ep->super.iface;
}

/* ---- stages ---- */

const char *tcp_stage_name(tcp_stage_t stage)
{
    static const char *const names[TCP_N_STAGES] = {
#define TCP_STAGE_NAME(name, handler) #name,
        TCP_STAGE_LIST(TCP_STAGE_NAME)
#undef TCP_STAGE_NAME
    };

    return names[stage];
}

static psc_list_t *tcp_ep_list(const tcp_ep_t *ep, tcp_stage_t stage)
{
    return stage < TCP_EP_UP || stage == TCP_EP_FAILING
               ? &tcp_ep_iface(ep)->connecting
               : &tcp_ep_iface(ep)->settled;
}

void tcp_ep_enter(tcp_ep_t *ep, tcp_stage_t stage)
{
    tcp_iface_t *iface = tcp_ep_iface(ep);

    psc_iface_log(&iface->super, 4, "endpoint %016llx: %s -> %s",
                  (unsigned long long)ep->id, tcp_stage_name(ep->stage),
                  tcp_stage_name(stage));
    if (tcp_ep_list(ep, stage) != tcp_ep_list(ep, ep->stage)) {
        psc_list_remove(&ep->link);
        psc_list_push(tcp_ep_list(ep, stage), &ep->link);
    }
    ep->stage = stage;
    if (stage != TCP_EP_UP && iface->hot == ep)
        tcp_hot_set(iface, NULL);
    tcp_ep_watch(ep);
}

static psc_status_t tcp_ep_try_watch(tcp_ep_t *ep)
{
    static const uint32_t reads[TCP_N_STAGES] = {
        [TCP_EP_CALLED] = EPOLLIN, [TCP_EP_AWAIT_ANSWER] = EPOLLIN,
        [TCP_EP_UP] = EPOLLIN,     [TCP_EP_CLOSING] = EPOLLIN,
    };
    tcp_iface_t *iface = tcp_ep_iface(ep);
    bool sends = ep->stage == TCP_EP_UP || ep->stage == TCP_EP_CLOSING;
    uint32_t out = sends && !tcp_out_empty(&ep->out) ? EPOLLOUT : 0;
    uint32_t in = reads[ep->stage];
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

    if (ep->stage >= TCP_EP_FAILING)
        return;
    va_start(args, format);
    vsnprintf(ep->reason, sizeof(ep->reason), format, args);
    va_end(args);
    ep->status = status;
    tcp_ep_enter(ep, TCP_EP_FAILING);
    tcp_iface_wake_at(tcp_ep_iface(ep), 0);
}

static void tcp_ep_hang_up(tcp_ep_t *ep)
{
    tcp_dials_close(ep);
    tcp_source_close(tcp_ep_iface(ep), &ep->rx);
    tcp_source_close(tcp_ep_iface(ep), &ep->tx);
    tcp_out_finish(ep);
}

void tcp_ep_end(tcp_ep_t *ep)
{
    tcp_ep_enter(ep, TCP_EP_CLOSED);
    tcp_ep_hang_up(ep);
}

void tcp_ep_tell_failure(tcp_ep_t *ep)
{
    tcp_iface_t *iface = tcp_ep_iface(ep);

    tcp_ep_enter(ep, TCP_EP_FAILED);
    tcp_ep_hang_up(ep);
    iface->handled++;
    if (!ep->closed)
        iface->super.up->ep_failed(&ep->super, ep->status, ep->reason);
    tcp_out_cancel(ep, ep->status);
}

/* ---- creating ---- */

static psc_status_t tcp_ep_allocate(tcp_iface_t *iface, tcp_ep_t **ep_p)
{
    tcp_ep_t *ep = calloc(1, sizeof(*ep));

    if (!ep)
        return PSC_ERR_NO_MEMORY;
    if (tcp_in_init(&ep->in) != PSC_OK ||
        tcp_out_init(&ep->out, iface->settings.buffer_size) != PSC_OK) {
        tcp_ep_free(ep);
        return PSC_ERR_NO_MEMORY;
    }
    *ep_p = ep;
    return PSC_OK;
}

psc_status_t tcp_ep_create(psc_iface_t *self, void *user, psc_ep_t **ep_p)
{
    tcp_iface_t *iface = (tcp_iface_t *)self;
    tcp_ep_t *ep;
    psc_status_t status = tcp_ep_allocate(iface, &ep);

    if (status != PSC_OK)
        return status;
    /* A caller names the endpoint by this number; it cannot be guessed. */
    if (getrandom(&ep->id, sizeof(ep->id), 0) != sizeof(ep->id)) {
        tcp_ep_free(ep);
        return PSC_ERR_TRANSPORT;
    }
    ep->super.iface = self;
    ep->super.user = user;
    ep->stage = TCP_EP_NEW;
    ep->rx = (tcp_source_t){.ready = tcp_ep_ready, .fd = -1};
    ep->tx = (tcp_source_t){.ready = tcp_ep_writable, .fd = -1};
    ep->deadline = TCP_NEVER;
    psc_list_push(&iface->connecting, &ep->link);
    *ep_p = &ep->super;
    return PSC_OK;
}

psc_status_t tcp_ep_address(psc_ep_t *self, uint8_t *address, size_t *len_p)
{
    return tcp_address_pack((const tcp_ep_t *)self, address, len_p);
}

/* ---- closing ---- */

/* Sends in flight that will not leave end from progress, as failures do. */
void tcp_ep_close(psc_ep_t *self)
{
    tcp_ep_t *ep = (tcp_ep_t *)self;

    ep->closed = true;
    if (ep->stage == TCP_EP_UP && ep->role != PSC_ROLE_SELF) {
        tcp_ep_enter(ep, TCP_EP_CLOSING);
        tcp_out_goodbye(ep);
    } else if (ep->out.first_send != ep->out.last_send) {
        tcp_ep_break(ep, PSC_ERR_CLOSED, "closed");
    } else if (ep->stage != TCP_EP_CLOSING) {
        tcp_ep_end(ep);
    }
}

/* A socket that is closed while the peer has not acknowledged everything may
 * lose the rest: bytes that then arrive make the kernel reset the stream. */
psc_status_t tcp_ep_stop(psc_ep_t *self)
{
    tcp_ep_t *ep = (tcp_ep_t *)self;
    int unsent = 0;

    if (ep->stage != TCP_EP_CLOSING)
        return ep->stage == TCP_EP_FAILING ? PSC_INPROGRESS : PSC_OK;
    if (!tcp_out_empty(&ep->out))
        return PSC_INPROGRESS;
    if (ioctl(ep->rx.fd, SIOCOUTQ, &unsent) == 0 && unsent > 0)
        return PSC_INPROGRESS;
    tcp_ep_end(ep);
    return PSC_OK;
}

void tcp_ep_free(tcp_ep_t *ep)
{
    tcp_in_free(&ep->in);
    tcp_out_free(&ep->out);
    free(ep->dials);
    psc_proof_wipe(&ep->proof);
    free(ep);
}

/* Inside progress somebody up the stack may still look at the endpoint. */
void tcp_ep_fini(psc_ep_t *self)
{
    tcp_ep_t *ep = (tcp_ep_t *)self;
    tcp_iface_t *iface = tcp_ep_iface(ep);

    tcp_ep_end(ep);
    psc_list_remove(&ep->link);
    if (iface->in_progress)
        psc_list_push(&iface->graveyard, &ep->link);
    else
        tcp_ep_free(ep);
}
