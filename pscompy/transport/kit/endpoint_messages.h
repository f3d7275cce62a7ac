/* Messages of endpoints that prove the token by messages (endpoint.h): their
 * head, their credit, and the control messages that all such transports have.
 * Header only. */
#ifndef PSCOMPY_KIT_ENDPOINT_MESSAGES_H
#define PSCOMPY_KIT_ENDPOINT_MESSAGES_H

#include "pscompy/transport/kit/endpoint.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "what travels is copied from memory");

/* The head of a message. header_len bytes of header follow, then the
 * payload. */
typedef struct psc_head {
    uint8_t kind, id, header_len, reserved;
    uint32_t taken; /* messages that the sender of this head has received */
} psc_head_t;

/* Kinds of messages; a transport numbers its own from PSC_N_PARTY_KINDS on. */
typedef enum psc_party_kind {
    PSC_PARTY_AM = PSC_N_PROOF_KINDS, /* lower kinds prove the token */
    PSC_PARTY_CREDIT,                 /* the head only */
    PSC_PARTY_GOODBYE,                /* the last message */
    PSC_N_PARTY_KINDS
} psc_party_kind_t;

/* ---- the token proof ---- */

/* Returns false if there are no random bytes. */
static inline bool psc_party_meet(psc_party_t *party, uint64_t peer_id,
                                  const uint8_t token[PSC_TOKEN_SIZE],
                                  int64_t deadline)
{
    if (!psc_proof_begin(&party->proof, party->role, token, party->id, peer_id))
        return false;
    party->deadline = deadline;
    psc_party_enter(party, PSC_PARTY_MEETING);
    return true;
}

/* Acts on the verdict, after the reply was sent if there was one. */
static inline void psc_party_judge(psc_party_t *party,
                                   const psc_proof_reply_t *reply, bool said)
{
    if (reply->verdict == PSC_PROOF_REFUSED) {
        psc_party_fail(party, PSC_ERR_CONNECT, "%s", reply->why);
    } else if (reply->verdict == PSC_PROOF_OUT_OF_TURN) {
        psc_party_fail(party, PSC_ERR_PROTOCOL, "a message out of turn");
    } else if (!said) {
        psc_party_fail(party, PSC_ERR_CONNECT, "no room for a reply");
    } else if (reply->verdict == PSC_PROOF_ACCEPTED) {
        psc_party_enter(party, PSC_PARTY_UP);
        party->super.iface->up->ep_up(&party->super);
    }
}

/* Processes a message of the token proof, and sends the reply. */
static inline void psc_party_prove(psc_party_t *party, uint8_t kind,
                                   const uint8_t *body, size_t len)
{
    psc_proof_reply_t reply;
    bool said;

    if (psc_party_fails(party) || party->state >= PSC_PARTY_FAILED)
        return;
    psc_proof_receive(&party->proof, kind, body, len, &reply);
    said = reply.kind == PSC_PROOF_NONE ||
           party->all->send(party, (uint8_t)reply.kind, reply.body,
                            reply.len) == PSC_OK;
    psc_party_judge(party, &reply, said);
}

/* Returns true if the peer is to receive a goodbye: it has our address, is not
 * lost, and its proof has not failed. */
static inline bool psc_party_greeted(const psc_party_t *party)
{
    if (party->state == PSC_PARTY_FAILED)
        return party->status != PSC_ERR_CONNECT;
    return party->state == PSC_PARTY_UP ||
           party->proof.state == PSC_PROOF_AWAIT_ANSWER;
}

/* ---- messages ---- */

/* Every head reports credit. */
static inline psc_head_t psc_head_make(psc_party_t *party, uint8_t kind,
                                       uint8_t id, uint8_t header_len)
{
    return (psc_head_t){
        .kind = kind,
        .id = id,
        .header_len = header_len,
        .taken = psc_credit_report(&party->credit),
    };
}

/* Copies the head from the message, which the peer may still be writing.
 * Returns false, and the endpoint fails, if the message is too short. */
static inline bool psc_head_read(psc_party_t *party, const uint8_t *bytes,
                                 size_t len, psc_head_t *head_p)
{
    if (len >= sizeof(*head_p)) {
        memcpy(head_p, bytes, sizeof(*head_p));
        if (head_p->header_len <= PSC_AM_HEADER_MAX &&
            head_p->header_len <= len - sizeof(*head_p))
            return true;
    }
    psc_party_fail(party, PSC_ERR_PROTOCOL, "a malformed header");
    return false;
}

/* Handles the kinds of messages that all transports have, except active
 * messages. */
static inline void psc_party_control(psc_party_t *party, uint8_t kind,
                                     const uint8_t *body, size_t len)
{
    if (kind == PSC_PARTY_GOODBYE) {
        party->goodbye = true;
        psc_party_fail(party, PSC_ERR_CLOSED, "the peer has closed");
    } else if (kind != PSC_PARTY_CREDIT) {
        psc_party_prove(party, kind, body, len);
    }
}

/* Counts a message that takes part in the window. */
static inline void psc_party_count(psc_party_t *party)
{
    party->credit.received++;
    if (psc_credit_due(&party->credit) && !psc_link_listed(&party->owing))
        psc_list_push(&party->all->owing, &party->owing);
}

/* Called by progress: sends the reports of credit that no message carried. */
static inline void psc_parties_pay(psc_parties_t *all)
{
    psc_list_for_each(party, &all->owing, psc_party_t, owing) {
        if (party->state == PSC_PARTY_UP && psc_credit_due(&party->credit) &&
            all->send(party, PSC_PARTY_CREDIT, NULL, 0) == PSC_ERR_NO_RESOURCE)
            continue;
        psc_list_remove(&party->owing);
    }
}

#endif
