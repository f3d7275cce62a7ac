/* Connecting: each side gives its channel (psptl_channel_t) the address of the
 * peer's channel, and both prove that they know the token in
 * psc_connect_params_t (transport/kit/token_proof.h). The acceptor's channel
 * keeps a hello, the first message of that proof, which arrives before the
 * acceptor knows its peer. */
#include "portals.h"
#include "pscompy/transport/kit/clock.h"

/* Returns the patience_ns (psptl.h) of a channel. If the connection has other
 * rails (`spare`), this is PSP_PORTALS_RAIL_TIMEOUT, plus half of it for each
 * earlier path. So the rails to a stopped peer fail one after the other, and
 * the last one, which has no other rails then, waits without this limit. */
static uint64_t portals_patience(const portals_ep_t *ep, uint32_t spare)
{
    const portals_settings_t *settings = &portals_ep_iface(ep)->settings;
    uint64_t half = (uint64_t)settings->rail_ns / 2;

    return spare ? (2 + settings->path) * half : 0;
}

void portals_ep_spare(psc_ep_t *self, uint32_t spare)
{
    portals_ep_t *ep = portals_ep(self);

    psptl_channel_patience(ep->channel, portals_patience(ep, spare));
}

static void portals_connect_open(portals_ep_t *ep, uint64_t patience_ns)
{
    uint32_t recvq = portals_ep_iface(ep)->settings.driver.recvq;

    ep->kit.credit.window = ep->peer.window;
    ep->kit.credit.step = (recvq + 1) / 2;
    psptl_channel_connect(ep->channel, &ep->peer.driver, patience_ns);
}

/* Connects an endpoint that is its own peer, which needs no proof of the
 * token. */
static psc_status_t portals_connect_self(portals_ep_t *ep)
{
    if (ep->peer.driver.bits != ep->kit.id)
        return PSC_ERR_INVALID;
    portals_connect_open(ep, 0);
    psc_kit_ep_enter(&ep->kit, PSC_KIT_EP_UP);
    return PSC_OK;
}

static psc_status_t portals_connect_begin(portals_ep_t *ep,
                                          const psc_connect_params_t *params)
{
    portals_iface_t *iface = portals_ep_iface(ep);

    if (!psc_kit_ep_start_proof(&ep->kit, ep->peer.driver.bits, params->token,
                                psc_clock_deadline(iface->settings.connect_ns)))
        return PSC_ERR_TRANSPORT;
    if (ep->peer.buffer_size != iface->settings.driver.buffer_size) {
        psc_kit_ep_fail(&ep->kit, PSC_ERR_CONNECT,
                        "PSP_PORTALS_BUFFER_SIZE differs between the two "
                        "sides");
        return PSC_INPROGRESS;
    }
    portals_connect_open(ep, portals_patience(ep, params->spare));
    if (ep->kit.role == PSC_ROLE_CONNECTOR)
        portals_control_send(&ep->kit, PSC_PROOF_HELLO,
                             psc_proof_hello(&ep->kit.proof),
                             PSC_PROOF_NONCE_SIZE);
    return PSC_INPROGRESS;
}

psc_status_t portals_ep_connect(psc_ep_t *self,
                                const psc_connect_params_t *params)
{
    portals_ep_t *ep = portals_ep(self);

    if (ep->kit.state != PSC_KIT_EP_NEW ||
        !portals_address_unpack(params->address, params->address_len,
                                &ep->peer))
        return PSC_ERR_INVALID;
    ep->kit.role = params->role;
    return ep->kit.role == PSC_ROLE_SELF ? portals_connect_self(ep)
                                         : portals_connect_begin(ep, params);
}
