/* Messages of endpoints that prove by messages that they hold the lane's token
 * (endpoint.h): the messages' head and credit, and the control messages that
 * all such transports have. Header only. */
#ifndef PSCOMPY_KIT_ENDPOINT_MESSAGES_H
#define PSCOMPY_KIT_ENDPOINT_MESSAGES_H

#include "pscompy/transport/kit/endpoint.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "what travels is copied from memory");

/* The head of a message. header_len bytes of header follow, then the
 * payload. */
typedef struct psc_head {
    uint8_t kind, id, header_len, reserved;
    /* messages that the sender of this head has received so far (credit.h) */
    uint32_t taken;
} psc_head_t;

/* Kinds of messages; a transport numbers its own from PSC_N_KIT_EP_KINDS on. */
typedef enum psc_kit_ep_kind {
    /* an active message; the kinds below are those of the token's proof */
    PSC_KIT_EP_AM = PSC_N_PROOF_KINDS,
    PSC_KIT_EP_CREDIT, /* only reports credit, in `taken` of its head */
    PSC_KIT_EP_GOODBYE, /* the last message */
    PSC_N_KIT_EP_KINDS
} psc_kit_ep_kind_t;

/* ---- the token proof ---- */

/* Starts the token proof. Returns false if there are no random bytes. */
static inline bool psc_kit_ep_start_proof(psc_kit_ep_t *ep, uint64_t peer_id,
                                          const uint8_t token[PSC_TOKEN_SIZE],
                                          int64_t deadline)
{
    if (!psc_proof_begin(&ep->proof, ep->role, token, ep->id, peer_id))
        return false;
    ep->deadline = deadline;
    psc_kit_ep_enter(ep, PSC_KIT_EP_PROVING);
    return true;
}

/* Acts on the verdict of the token proof. `replied` is false if a reply could
 * not be sent. */
static inline void psc_kit_ep_apply_verdict(psc_kit_ep_t *ep,
                                            const psc_proof_reply_t *reply,
                                            bool replied)
{
    if (reply->verdict == PSC_PROOF_REFUSED) {
        psc_kit_ep_fail(ep, PSC_ERR_CONNECT, "%s", reply->why);
    } else if (reply->verdict == PSC_PROOF_OUT_OF_TURN) {
        psc_kit_ep_fail(ep, PSC_ERR_PROTOCOL, "a message out of turn");
    } else if (!replied) {
        psc_kit_ep_fail(ep, PSC_ERR_CONNECT, "no room for a reply");
    } else if (reply->verdict == PSC_PROOF_ACCEPTED) {
        psc_kit_ep_enter(ep, PSC_KIT_EP_UP);
        ep->super.iface->up->ep_up(&ep->super);
    }
}

/* Processes a message of the token proof, and sends the reply. */
static inline void psc_kit_ep_continue_proof(psc_kit_ep_t *ep, uint8_t kind,
                                             const uint8_t *body, size_t len)
{
    psc_proof_reply_t reply;
    bool replied;

    if (psc_kit_ep_fails(ep) || ep->state >= PSC_KIT_EP_FAILED)
        return;
    psc_proof_receive(&ep->proof, kind, body, len, &reply);
    replied =
        reply.kind == PSC_PROOF_NONE ||
        ep->all->send(ep, (uint8_t)reply.kind, reply.body, reply.len) == PSC_OK;
    psc_kit_ep_apply_verdict(ep, &reply, replied);
}

/* Returns true if the peer is to receive a goodbye (the last message): the peer
 * has our address, is not lost, and its proof has not failed. */
static inline bool psc_kit_ep_expects_goodbye(const psc_kit_ep_t *ep)
{
    if (ep->state == PSC_KIT_EP_FAILED)
        return ep->status != PSC_ERR_CONNECT;
    return ep->state == PSC_KIT_EP_UP ||
           ep->proof.state == PSC_PROOF_AWAIT_ANSWER;
}

/* ---- messages ---- */

/* Makes a head, which reports credit to the peer. */
static inline psc_head_t psc_head_make(psc_kit_ep_t *ep, uint8_t kind,
                                       uint8_t id, uint8_t header_len)
{
    return (psc_head_t){
        .kind = kind,
        .id = id,
        .header_len = header_len,
        .taken = psc_credit_report(&ep->credit),
    };
}

/* Copies the head from the message, which the peer may still be writing.
 * Returns false, and the endpoint fails, if the message is too short. */
static inline bool psc_head_read(psc_kit_ep_t *ep, const uint8_t *bytes,
                                 size_t len, psc_head_t *head_p)
{
    if (len >= sizeof(*head_p)) {
        memcpy(head_p, bytes, sizeof(*head_p));
        if (head_p->header_len <= PSC_AM_HEADER_MAX &&
            head_p->header_len <= len - sizeof(*head_p))
            return true;
    }
    psc_kit_ep_fail(ep, PSC_ERR_PROTOCOL, "a malformed header");
    return false;
}

/* Handles the kinds of messages that all transports have, except active
 * messages. */
static inline void psc_kit_ep_control(psc_kit_ep_t *ep, uint8_t kind,
                                      const uint8_t *body, size_t len)
{
    if (kind == PSC_KIT_EP_GOODBYE) {
        ep->goodbye = true;
        psc_kit_ep_fail(ep, PSC_ERR_CLOSED, "the peer has closed");
    } else if (kind != PSC_KIT_EP_CREDIT) {
        psc_kit_ep_continue_proof(ep, kind, body, len);
    }
}

/* Counts a received message that used credit, and lists the endpoint in `owing`
 * if a report of credit is due. */
static inline void psc_kit_ep_count(psc_kit_ep_t *ep)
{
    ep->credit.received++;
    if (psc_credit_due(&ep->credit) && !psc_link_listed(&ep->owing))
        psc_list_push(&ep->all->owing, &ep->owing);
}

/* Called by progress: sends the reports of credit that no message carried. */
static inline void psc_kit_eps_send_credit(psc_kit_eps_t *all)
{
    psc_list_for_each(ep, &all->owing, psc_kit_ep_t, owing) {
        if (ep->state == PSC_KIT_EP_UP && psc_credit_due(&ep->credit) &&
            all->send(ep, PSC_KIT_EP_CREDIT, NULL, 0) == PSC_ERR_NO_RESOURCE)
            continue;
        psc_list_remove(&ep->owing);
    }
}

#endif
