/* How endpoints come up: each side's channel is told the other's place, and
 * then the token is proved (core/parts/meet.h). The hello may come before the
 * acceptor knows of its peer; the channel keeps it. */
#include "portals.h"
#include "pscompy/core/parts/clock.h"

static void portals_ep_rise(portals_ep_t *ep)
{
    portals_iface_t *iface = portals_ep_iface(ep);

    portals_ep_enter(ep, PORTALS_EP_UP);
    iface->super.up->ep_up(&ep->super);
}

void portals_meet_arrived(portals_ep_t *ep, uint8_t kind, const uint8_t *body,
                          size_t len)
{
    psc_meet_reply_t reply;
    bool said;

    if (ep->failing || ep->state >= PORTALS_EP_FAILED)
        return;
    psc_meet_take(&ep->meet, kind, body, len, &reply);
    said = reply.kind == PSC_MEET_NOTHING ||
           portals_control_send(ep, (uint8_t)reply.kind, reply.body,
                                reply.len) == PSC_OK;
    if (reply.verdict == PSC_MEET_REFUSED)
        portals_ep_fail(ep, PSC_ERR_CONNECT, "portals: %s", reply.why);
    else if (reply.verdict == PSC_MEET_ASTRAY)
        portals_ep_fail(ep, PSC_ERR_PROTOCOL, "portals: a message out of turn");
    else if (!said)
        portals_ep_fail(ep, PSC_ERR_CONNECT, "portals: no room for a reply");
    else if (reply.verdict == PSC_MEET_MET)
        portals_ep_rise(ep);
}

/* ---- connecting ---- */

static void portals_meet_open(portals_ep_t *ep)
{
    ep->window = ep->peer.window;
    ep->driver->channel_connect(ep->channel, &ep->peer.place);
}

/* Its own peer: there is nobody to prove anything to. */
static psc_status_t portals_meet_self(portals_ep_t *ep)
{
    if (ep->peer.place.bits != ep->bits)
        return PSC_ERR_INVALID;
    portals_meet_open(ep);
    portals_ep_enter(ep, PORTALS_EP_UP);
    return PSC_OK;
}

static psc_status_t portals_meet_begin(portals_ep_t *ep,
                                       const psc_connect_params_t *params)
{
    portals_iface_t *iface = portals_ep_iface(ep);

    if (!psc_meet_begin(&ep->meet, ep->role, params->token, ep->bits,
                        ep->peer.place.bits))
        return PSC_ERR_TRANSPORT;
    ep->deadline = psc_clock_deadline(iface->settings.connect_ns);
    portals_ep_enter(ep, PORTALS_EP_MEETING);
    if (ep->peer.buffer_size != iface->settings.driver.buffer_size) {
        portals_ep_fail(ep, PSC_ERR_CONNECT,
                        "portals: PSP_PORTALS_BUFFER_SIZE differs between the "
                        "two sides");
        return PSC_INPROGRESS;
    }
    portals_meet_open(ep);
    if (ep->role == PSC_ROLE_CONNECTOR)
        portals_control_send(ep, PSC_MEET_HELLO, ep->meet.nonces[0],
                             PSC_MEET_NONCE_SIZE);
    return PSC_INPROGRESS;
}

psc_status_t portals_ep_connect(psc_ep_t *self,
                                const psc_connect_params_t *params)
{
    portals_ep_t *ep = portals_ep(self);

    if (ep->state != PORTALS_EP_NEW ||
        !portals_address_unpack(params->address, params->address_len,
                                &ep->peer))
        return PSC_ERR_INVALID;
    ep->role = params->role;
    return ep->role == PSC_ROLE_SELF ? portals_meet_self(ep)
                                     : portals_meet_begin(ep, params);
}
