/* Connecting: each side connects its queue pairs to the queue pairs that the
 * peer's address names, then both prove that they know the token
 * (transport/kit/token_proof.h).
 *
 * The acceptor sends nothing before the connector's hello has arrived. So if
 * the hello is not acknowledged, because the acceptor has not connected its
 * queue pairs yet, the connector may reset its own and start again any number
 * of times without losing a message. */
#include <errno.h>
#include <string.h>

#include "ib.h"
#include "pscompy/transport/kit/clock.h"

static bool ib_connect_queues(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);
    const ib_path_t *path = &iface->settings.path;

    if (ib_queue_connect(&ep->messages, &iface->device, &ep->peer.messages,
                         path) &&
        ib_queue_connect(&ep->bulk, &iface->device, &ep->peer.bulk, path))
        return true;
    psc_kit_ep_fail(&ep->kit, PSC_ERR_CONNECT,
                    "the peer's place is refused: %s", strerror(errno));
    return false;
}

static void ib_connect_greet(ib_ep_t *ep)
{
    if (ib_connect_queues(ep))
        ib_control_send(&ep->kit, PSC_PROOF_HELLO,
                        psc_proof_hello(&ep->kit.proof), PSC_PROOF_NONCE_SIZE);
}

void ib_connect_again(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);

    if (ib_queue_reset(&ep->messages, &iface->device) &&
        ib_queue_reset(&ep->bulk, &iface->device))
        ib_connect_greet(ep);
    else
        psc_kit_ep_fail(&ep->kit, PSC_ERR_TRANSPORT, "resetting the queues: %s",
                        strerror(errno));
}

/* Connects an endpoint to itself; this needs no proof of the token. */
static psc_status_t ib_connect_self(ib_ep_t *ep)
{
    if (ep->peer.messages.qpn != ep->messages.qp->qp_num)
        return PSC_ERR_INVALID;
    if (!ib_connect_queues(ep))
        return PSC_INPROGRESS;
    psc_kit_ep_enter(&ep->kit, PSC_KIT_EP_UP);
    return PSC_OK;
}

static const char *ib_address_flaw(const ib_ep_t *ep)
{
    const ib_iface_t *iface = ib_ep_iface(ep);

    if (ep->peer.ethernet != ib_device_ethernet(&iface->device))
        return "one side is on Ethernet, the other on InfiniBand";
    if (ep->peer.buffer_size != iface->settings.buffer_size)
        return "PSP_IB_BUFFER_SIZE differs between the two sides";
    return NULL;
}

psc_status_t ib_ep_connect(psc_ep_t *self, const psc_connect_params_t *params)
{
    ib_ep_t *ep = ib_ep(self);
    const ib_iface_t *iface = ib_ep_iface(ep);
    const char *flaw;

    if (ep->kit.state != PSC_KIT_EP_NEW ||
        !ib_address_unpack(params->address, params->address_len, &ep->peer))
        return PSC_ERR_INVALID;
    ep->kit.role = params->role;
    ep->kit.credit.window = ep->peer.window;
    if (ep->kit.role == PSC_ROLE_SELF)
        return ib_connect_self(ep);
    if (!psc_kit_ep_start_proof(&ep->kit, ep->peer.messages.qpn, params->token,
                                psc_clock_deadline(iface->settings.connect_ns)))
        return PSC_ERR_TRANSPORT;
    flaw = ib_address_flaw(ep);
    if (flaw)
        psc_kit_ep_fail(&ep->kit, PSC_ERR_CONNECT, "%s", flaw);
    else if (ep->kit.role == PSC_ROLE_CONNECTOR)
        ib_connect_greet(ep);
    else
        ib_connect_queues(ep);
    return PSC_INPROGRESS;
}
