/* How endpoints come up. Each side's queue pair is told the other's place, and
 * then the token is proved:
 *
 *   connector  HELLO(nonce) ->
 *              <- CHALLENGE(nonce, proof)   acceptor
 *              PROOF(proof) ->              connector is up, then acceptor
 *
 * The acceptor says nothing before it was spoken to. So if nobody acknowledges
 * the hello, because the acceptor is late, the connector may begin anew with
 * fresh queues, as long as it likes: no message can be lost by that. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "ib.h"
#include "pscompy/core/parts/clock.h"

typedef struct ib_challenge {
    uint8_t nonce[IB_NONCE_SIZE];
    uint8_t proof[PSC_SIPHASH_SIZE];
} ib_challenge_t;

/* ---- proofs ---- */

/* Bound to both queue pairs, and to who says it. */
static void ib_prove(const ib_ep_t *ep, bool connector,
                     uint8_t proof_p[PSC_SIPHASH_SIZE])
{
    uint8_t text[64] = {connector ? 'c' : 'a'};
    uint32_t ours = ep->messages.qp->qp_num, theirs = ep->peer.messages.qpn;
    bool we_connect = ep->role == PSC_ROLE_CONNECTOR;

    memcpy(text + 8, we_connect ? &ours : &theirs, sizeof(ours));
    memcpy(text + 12, we_connect ? &theirs : &ours, sizeof(ours));
    memcpy(text + 16, ep->nonces, sizeof(ep->nonces));
    memcpy(text + 48, ep->token + PSC_SIPHASH_KEY_SIZE,
           PSC_TOKEN_SIZE - PSC_SIPHASH_KEY_SIZE);
    psc_siphash(ep->token, text, sizeof(text), proof_p);
}

static bool ib_proved(const ib_ep_t *ep, bool connector, const uint8_t *proof)
{
    uint8_t right[PSC_SIPHASH_SIZE];

    ib_prove(ep, connector, right);
    return psc_siphash_equal(right, proof);
}

static void ib_ep_rise(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);

    explicit_bzero(ep->token, sizeof(ep->token));
    ib_ep_enter(ep, IB_EP_UP);
    iface->super.up->ep_up(&ep->super);
}

static void ib_meet_refuse(ib_ep_t *ep, const char *why)
{
    ib_control_send(ep, IB_KIND_REFUSAL, why, strlen(why));
    ib_ep_fail(ep, PSC_ERR_CONNECT, "ib: %s", why);
}

/* ---- stages ---- */

static void ib_meet_hello(ib_ep_t *ep, const uint8_t *body, size_t len)
{
    ib_challenge_t challenge;

    if (len != IB_NONCE_SIZE) {
        ib_meet_refuse(ep, "a hello of a wrong length");
        return;
    }
    memcpy(ep->nonces[0], body, IB_NONCE_SIZE);
    memcpy(challenge.nonce, ep->nonces[1], IB_NONCE_SIZE);
    ib_prove(ep, false, challenge.proof);
    ib_ep_enter(ep, IB_EP_PROVING);
    ib_control_send(ep, IB_KIND_CHALLENGE, &challenge, sizeof(challenge));
}

static void ib_meet_challenge(ib_ep_t *ep, const uint8_t *body, size_t len)
{
    ib_challenge_t challenge;
    uint8_t proof[PSC_SIPHASH_SIZE];

    if (len != sizeof(challenge)) {
        ib_meet_refuse(ep, "a challenge of a wrong length");
        return;
    }
    memcpy(&challenge, body, sizeof(challenge));
    memcpy(ep->nonces[1], challenge.nonce, IB_NONCE_SIZE);
    if (!ib_proved(ep, false, challenge.proof)) {
        ib_meet_refuse(ep, "the acceptor does not hold the lane's token");
        return;
    }
    ib_prove(ep, true, proof);
    if (ib_control_send(ep, IB_KIND_PROOF, proof, sizeof(proof)) == PSC_OK)
        ib_ep_rise(ep);
}

static void ib_meet_proof(ib_ep_t *ep, const uint8_t *body, size_t len)
{
    if (len != PSC_SIPHASH_SIZE || !ib_proved(ep, true, body))
        ib_meet_refuse(ep, "the connector does not hold the lane's token");
    else
        ib_ep_rise(ep);
}

static void ib_meet_refusal(ib_ep_t *ep, const uint8_t *body, size_t len)
{
    char why[PSC_REASON_MAX / 2];
    size_t n = len < sizeof(why) ? len : sizeof(why) - 1;

    for (size_t i = 0; i < n; i++)
        why[i] = body[i] >= ' ' && body[i] < 127 ? (char)body[i] : '?';
    why[n] = 0;
    ib_ep_fail(ep, PSC_ERR_CONNECT, "ib: the peer refuses: %s", why);
}

void ib_meet_arrived(ib_ep_t *ep, uint8_t kind, const uint8_t *body,
                     size_t len)
{
    if (ep->failing || ep->state >= IB_EP_FAILED)
        return;
    if (kind == IB_KIND_REFUSAL && ep->state != IB_EP_UP)
        ib_meet_refusal(ep, body, len);
    else if (kind == IB_KIND_HELLO && ep->state == IB_EP_AWAITING)
        ib_meet_hello(ep, body, len);
    else if (kind == IB_KIND_CHALLENGE && ep->state == IB_EP_KNOCKING)
        ib_meet_challenge(ep, body, len);
    else if (kind == IB_KIND_PROOF && ep->state == IB_EP_PROVING)
        ib_meet_proof(ep, body, len);
    else
        ib_ep_fail(ep, PSC_ERR_PROTOCOL, "ib: a message out of turn");
}

/* ---- connecting ---- */

static bool ib_meet_queues(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);
    const ib_path_t *path = &iface->settings.path;

    if (ib_queue_connect(&ep->messages, &iface->device, &ep->peer.messages,
                         path) &&
        ib_queue_connect(&ep->bulk, &iface->device, &ep->peer.bulk, path))
        return true;
    ib_ep_fail(ep, PSC_ERR_CONNECT, "ib: the peer's place is refused: %s",
               strerror(errno));
    return false;
}

static void ib_meet_knock(ib_ep_t *ep)
{
    if (ib_meet_queues(ep))
        ib_control_send(ep, IB_KIND_HELLO, ep->nonces[0], IB_NONCE_SIZE);
}

void ib_meet_again(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);

    if (ib_queue_reset(&ep->messages, &iface->device) &&
        ib_queue_reset(&ep->bulk, &iface->device))
        ib_meet_knock(ep);
    else
        ib_ep_fail(ep, PSC_ERR_TRANSPORT, "ib: resetting the queues: %s",
                   strerror(errno));
}

/* Its own peer: there is nobody to prove anything to. */
static psc_status_t ib_meet_self(ib_ep_t *ep)
{
    if (ep->peer.messages.qpn != ep->messages.qp->qp_num)
        return PSC_ERR_INVALID;
    if (!ib_meet_queues(ep))
        return PSC_INPROGRESS;
    ib_ep_enter(ep, IB_EP_UP);
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
    const char *flaw;

    if (ep->state != IB_EP_NEW ||
        !ib_address_unpack(params->address, params->address_len, &ep->peer))
        return PSC_ERR_INVALID;
    ep->role = params->role;
    if (ep->role == PSC_ROLE_SELF)
        return ib_meet_self(ep);
    memcpy(ep->token, params->token, PSC_TOKEN_SIZE);
    if (getrandom(ep->nonces[ep->role == PSC_ROLE_ACCEPTOR], IB_NONCE_SIZE,
                  0) != IB_NONCE_SIZE)
        return PSC_ERR_TRANSPORT;
    ep->deadline =
        psc_clock_deadline(ib_ep_iface(ep)->settings.connect_ns);
    ib_ep_enter(ep, ep->role == PSC_ROLE_CONNECTOR ? IB_EP_KNOCKING
                                                   : IB_EP_AWAITING);
    flaw = ib_address_flaw(ep);
    if (flaw)
        ib_ep_fail(ep, PSC_ERR_CONNECT, "ib: %s", flaw);
    else if (ep->role == PSC_ROLE_CONNECTOR)
        ib_meet_knock(ep);
    else
        ib_meet_queues(ep);
    return PSC_INPROGRESS;
}
