/* How endpoints come up: the lane's token is proved by either side, so that
 * whoever knows match bits alone is not believed.
 *
 *   connector  HELLO(nonce) ->
 *              <- CHALLENGE(nonce, proof)   acceptor
 *              PROOF(proof) ->              connector is up, then acceptor
 *
 * The hello may come before the acceptor knows of its peer; the channel keeps
 * it. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "portals.h"
#include "pscompy/core/parts/clock.h"

typedef struct portals_challenge {
    uint8_t nonce[PORTALS_NONCE_SIZE];
    uint8_t proof[PSC_SIPHASH_SIZE];
} portals_challenge_t;

/* ---- proofs ---- */

/* Bound to both channels, and to who says it. */
static void portals_prove(const portals_ep_t *ep, bool connector,
                          uint8_t proof_p[PSC_SIPHASH_SIZE])
{
    uint8_t text[72] = {connector ? 'c' : 'a'};
    bool we_connect = ep->role == PSC_ROLE_CONNECTOR;
    const uint64_t *ours = &ep->bits, *theirs = &ep->peer.place.bits;

    memcpy(text + 8, we_connect ? ours : theirs, sizeof(*ours));
    memcpy(text + 16, we_connect ? theirs : ours, sizeof(*ours));
    memcpy(text + 24, ep->nonces, sizeof(ep->nonces));
    memcpy(text + 56, ep->token + PSC_SIPHASH_KEY_SIZE,
           PSC_TOKEN_SIZE - PSC_SIPHASH_KEY_SIZE);
    psc_siphash(ep->token, text, sizeof(text), proof_p);
}

static bool portals_proved(const portals_ep_t *ep, bool connector,
                           const uint8_t *proof)
{
    uint8_t right[PSC_SIPHASH_SIZE];

    portals_prove(ep, connector, right);
    return psc_siphash_equal(right, proof);
}

static void portals_ep_rise(portals_ep_t *ep)
{
    portals_iface_t *iface = portals_ep_iface(ep);

    explicit_bzero(ep->token, sizeof(ep->token));
    portals_ep_enter(ep, PORTALS_EP_UP);
    iface->super.up->ep_up(&ep->super);
}

static void portals_meet_refuse(portals_ep_t *ep, const char *why)
{
    portals_control_send(ep, PORTALS_KIND_REFUSAL, why, strlen(why));
    portals_ep_fail(ep, PSC_ERR_CONNECT, "portals: %s", why);
}

/* ---- stages ---- */

static void portals_meet_hello(portals_ep_t *ep, const uint8_t *body,
                               size_t len)
{
    portals_challenge_t challenge;

    if (len != PORTALS_NONCE_SIZE) {
        portals_meet_refuse(ep, "a hello of a wrong length");
        return;
    }
    memcpy(ep->nonces[0], body, PORTALS_NONCE_SIZE);
    memcpy(challenge.nonce, ep->nonces[1], PORTALS_NONCE_SIZE);
    portals_prove(ep, false, challenge.proof);
    portals_ep_enter(ep, PORTALS_EP_PROVING);
    portals_control_send(ep, PORTALS_KIND_CHALLENGE, &challenge,
                         sizeof(challenge));
}

static void portals_meet_challenge(portals_ep_t *ep, const uint8_t *body,
                                   size_t len)
{
    portals_challenge_t challenge;
    uint8_t proof[PSC_SIPHASH_SIZE];

    if (len != sizeof(challenge)) {
        portals_meet_refuse(ep, "a challenge of a wrong length");
        return;
    }
    memcpy(&challenge, body, sizeof(challenge));
    memcpy(ep->nonces[1], challenge.nonce, PORTALS_NONCE_SIZE);
    if (!portals_proved(ep, false, challenge.proof)) {
        portals_meet_refuse(ep, "the acceptor does not hold the lane's token");
        return;
    }
    portals_prove(ep, true, proof);
    portals_control_send(ep, PORTALS_KIND_PROOF, proof, sizeof(proof));
    portals_ep_rise(ep);
}

static void portals_meet_proof(portals_ep_t *ep, const uint8_t *body,
                               size_t len)
{
    if (len != PSC_SIPHASH_SIZE || !portals_proved(ep, true, body))
        portals_meet_refuse(ep,
                            "the connector does not hold the lane's token");
    else
        portals_ep_rise(ep);
}

static void portals_meet_refusal(portals_ep_t *ep, const uint8_t *body,
                                 size_t len)
{
    char why[PSC_REASON_MAX / 2];
    size_t n = len < sizeof(why) ? len : sizeof(why) - 1;

    for (size_t i = 0; i < n; i++)
        why[i] = body[i] >= ' ' && body[i] < 127 ? (char)body[i] : '?';
    why[n] = 0;
    portals_ep_fail(ep, PSC_ERR_CONNECT, "portals: the peer refuses: %s", why);
}

void portals_meet_arrived(portals_ep_t *ep, uint8_t kind, const uint8_t *body,
                          size_t len)
{
    if (ep->failing || ep->state >= PORTALS_EP_FAILED)
        return;
    if (kind == PORTALS_KIND_REFUSAL && ep->state != PORTALS_EP_UP)
        portals_meet_refusal(ep, body, len);
    else if (kind == PORTALS_KIND_HELLO && ep->state == PORTALS_EP_AWAITING)
        portals_meet_hello(ep, body, len);
    else if (kind == PORTALS_KIND_CHALLENGE && ep->state == PORTALS_EP_KNOCKING)
        portals_meet_challenge(ep, body, len);
    else if (kind == PORTALS_KIND_PROOF && ep->state == PORTALS_EP_PROVING)
        portals_meet_proof(ep, body, len);
    else
        portals_ep_fail(ep, PSC_ERR_PROTOCOL, "portals: out of turn");
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
    bool connector = ep->role == PSC_ROLE_CONNECTOR;

    memcpy(ep->token, params->token, PSC_TOKEN_SIZE);
    if (getrandom(ep->nonces[!connector], PORTALS_NONCE_SIZE, 0) !=
        PORTALS_NONCE_SIZE)
        return PSC_ERR_TRANSPORT;
    ep->deadline = psc_clock_deadline(iface->settings.connect_ns);
    portals_ep_enter(ep, connector ? PORTALS_EP_KNOCKING : PORTALS_EP_AWAITING);
    if (ep->peer.buffer_size != iface->settings.driver.buffer_size) {
        portals_ep_fail(ep, PSC_ERR_CONNECT,
                        "portals: PSP_PORTALS_BUFFER_SIZE differs between the "
                        "two sides");
        return PSC_INPROGRESS;
    }
    portals_meet_open(ep);
    if (connector)
        portals_control_send(ep, PORTALS_KIND_HELLO, ep->nonces[0],
                             PORTALS_NONCE_SIZE);
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
