/* Connecting: each side names the other's place to its channel, and both prove
 * the token (transport/kit/token_proof.h). A hello that arrives before the
 * acceptor knows its peer is kept by the channel. */
#include "portals.h"
#include "pscompy/transport/kit/clock.h"

static void portals_connect_open(portals_ep_t *ep)
{
    uint32_t recvq = portals_ep_iface(ep)->settings.driver.recvq;

    ep->party.credit.window = ep->peer.window;
    ep->party.credit.step = (recvq + 1) / 2;
    psptl_channel_connect(ep->channel, &ep->peer.place);
}

/* An endpoint that is its own peer needs no proof. */
static psc_status_t portals_connect_self(portals_ep_t *ep)
{
    if (ep->peer.place.bits != ep->party.id)
        return PSC_ERR_INVALID;
    portals_connect_open(ep);
    psc_party_enter(&ep->party, PSC_PARTY_UP);
    return PSC_OK;
}

static psc_status_t portals_connect_begin(portals_ep_t *ep,
                                          const psc_connect_params_t *params)
{
    portals_iface_t *iface = portals_ep_iface(ep);

    if (!psc_party_meet(&ep->party, ep->peer.place.bits, params->token,
                        psc_clock_deadline(iface->settings.connect_ns)))
        return PSC_ERR_TRANSPORT;
    if (ep->peer.buffer_size != iface->settings.driver.buffer_size) {
        psc_party_fail(&ep->party, PSC_ERR_CONNECT,
                       "PSP_PORTALS_BUFFER_SIZE differs between the two "
                       "sides");
        return PSC_INPROGRESS;
    }
    portals_connect_open(ep);
    if (ep->party.role == PSC_ROLE_CONNECTOR)
        portals_control_send(&ep->party, PSC_PROOF_HELLO,
                             psc_proof_hello(&ep->party.proof),
                             PSC_PROOF_NONCE_SIZE);
    return PSC_INPROGRESS;
}

psc_status_t portals_ep_connect(psc_ep_t *self,
                                const psc_connect_params_t *params)
{
    portals_ep_t *ep = portals_ep(self);

    if (ep->party.state != PSC_PARTY_NEW ||
        !portals_address_unpack(params->address, params->address_len,
                                &ep->peer))
        return PSC_ERR_INVALID;
    ep->party.role = params->role;
    return ep->party.role == PSC_ROLE_SELF ? portals_connect_self(ep)
                                           : portals_connect_begin(ep, params);
}
