/* Endpoints: creating, entering the state UP, failing, closing. */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "tcp.h"
#include "pscompy/transport/kit/restart.h"

/* ---- entering UP ---- */

void tcp_ep_name_peer(tcp_ep_t *ep)
{
    tcp_sockaddr_t address = {0};
    socklen_t len = sizeof(address);

    if (getpeername(ep->rx.fd, &address.any, &len) == 0)
        tcp_address_print(&address, ep->peer, sizeof(ep->peer));
}

void tcp_ep_rise(tcp_ep_t *ep)
{
    tcp_iface_t *iface = tcp_ep_iface(ep);

    if (ep->same_host)
        tcp_socket_tune_local(ep->rx.fd);
    ep->in.start = ep->in.end = 0;
    tcp_ep_enter(ep, TCP_EP_UP);
    iface->handled++;
    if (ep->state == TCP_EP_UP)
        iface->super.up->ep_up(&ep->super);
}

/* ---- failing ---- */

void tcp_dials_close(tcp_ep_t *ep)
{
    for (unsigned i = 0; ep->dials && i < ep->n_candidates; i++) {
        tcp_source_close(tcp_ep_iface(ep), &ep->dials[i].source);
        psc_proof_wipe(&ep->dials[i].proof);
    }
}

static void tcp_ep_hang_up(tcp_ep_t *ep)
{
    tcp_dials_close(ep);
    tcp_source_close(tcp_ep_iface(ep), &ep->rx);
    tcp_source_close(tcp_ep_iface(ep), &ep->tx);
    tcp_out_finish(ep);
}

static void tcp_ep_end(tcp_ep_t *ep)
{
    tcp_ep_enter(ep, TCP_EP_CLOSED);
    tcp_ep_hang_up(ep);
}

void tcp_ep_report_failure(tcp_ep_t *ep)
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
    /* A caller names the endpoint by this id, which is random so that it cannot
     * be guessed. */
    if (getrandom(&ep->id, sizeof(ep->id), 0) != sizeof(ep->id)) {
        tcp_ep_free(ep);
        return PSC_ERR_TRANSPORT;
    }
    ep->super.iface = self;
    ep->super.user = user;
    ep->state = TCP_EP_NEW;
    ep->rx = (tcp_source_t){.ready = iface->rx_ready, .fd = -1};
    ep->tx = (tcp_source_t){.ready = iface->tx_ready, .fd = -1};
    ep->unsent = TCP_UNSENT_MIN;
    ep->short_max = TCP_SHORT_MAX;
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

/* Closes the endpoint. Zero-copy sends that cannot be sent any more are
 * completed by progress, as after a failure, not here. */
void tcp_ep_close(psc_ep_t *self)
{
    tcp_ep_t *ep = (tcp_ep_t *)self;

    ep->closed = true;
    if (ep->state == TCP_EP_UP && ep->role != PSC_ROLE_SELF) {
        tcp_ep_enter(ep, TCP_EP_CLOSING);
        tcp_out_goodbye(ep);
    } else if (ep->out.first_send != ep->out.last_send) {
        tcp_ep_break(ep, PSC_ERR_CLOSED, "closed");
    } else if (ep->state != TCP_EP_CLOSING) {
        tcp_ep_end(ep);
    }
}

/* Returns PSC_INPROGRESS until the peer has acknowledged all bytes. If the
 * socket were closed before, bytes that arrive later would make the kernel
 * reset the stream and discard the bytes that are not acknowledged. */
psc_status_t tcp_ep_stop(psc_ep_t *self)
{
    tcp_ep_t *ep = (tcp_ep_t *)self;
    int unsent = 0;

    if (ep->state != TCP_EP_CLOSING)
        return ep->state == TCP_EP_FAILING ? PSC_INPROGRESS : PSC_OK;
    if (!tcp_out_empty(&ep->out))
        return PSC_INPROGRESS;
    if (ioctl(ep->rx.fd, SIOCOUTQ, &unsent) == 0 && unsent > 0)
        return PSC_INPROGRESS;
    tcp_ep_end(ep);
    return PSC_OK;
}

void tcp_ep_discard(tcp_ep_t *ep)
{
    ssize_t n = PSC_RESTART(recv(ep->rx.fd, ep->in.buffer, TCP_READ_MAX, 0));

    if (n > 0 || (n < 0 && errno == EAGAIN))
        return;
    tcp_ep_end(ep);
    tcp_out_cancel(ep, PSC_ERR_PEER_LOST);
}

void tcp_ep_free(tcp_ep_t *ep)
{
    tcp_in_free(&ep->in);
    tcp_out_free(&ep->out);
    free(ep->dials);
    psc_proof_wipe(&ep->proof);
    free(ep);
}

/* Ends the endpoint. If this is called in an upcall, the code that made the
 * upcall may still use the endpoint, so it is freed when progress returns. */
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
