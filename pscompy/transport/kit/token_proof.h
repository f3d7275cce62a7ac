/* Two ends of a lane prove to each other that they hold its one-time token, in
 * messages that the transport carries:
 *
 *   connector  HELLO(nonce) ->
 *              <- CHALLENGE(nonce, proof)   acceptor
 *              ANSWER(proof) ->             connector is done, then acceptor
 *
 * Either side may send a REFUSAL with its reason instead. The token itself is
 * never sent. A proof is SipHash, keyed with the token, over the side that
 * makes it, both endpoints' ids and both nonces: it is valid for one lane, one
 * attempt and one direction.
 *
 * Pure: no function here sends or waits. A transport hands in the messages that
 * arrive, sends the reply, and acts on the verdict. A transport whose stream
 * tells messages apart by their order (tcp) needs no kinds on the wire and may
 * hang up instead of sending a refusal. Header only. */
#ifndef PSCOMPY_TRANSPORT_KIT_TOKEN_PROOF_H
#define PSCOMPY_TRANSPORT_KIT_TOKEN_PROOF_H

#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/random.h>

#include "pscompy/transport/kit/siphash.h"
#include "pscompy/transport/transport.h"

#define PSC_PROOF_SIZE PSC_SIPHASH_SIZE
#define PSC_PROOF_NONCE_SIZE 16u
#define PSC_PROOF_CHALLENGE_SIZE (PSC_PROOF_NONCE_SIZE + PSC_PROOF_SIZE)
#define PSC_PROOF_BODY_MAX 64u

/* A transport numbers its own kinds from PSC_N_PROOF_KINDS on. */
typedef enum psc_proof_kind {
    PSC_PROOF_NONE,
    PSC_PROOF_HELLO,     /* from the connector: nonce */
    PSC_PROOF_CHALLENGE, /* from the acceptor: nonce, proof */
    PSC_PROOF_ANSWER,    /* from the connector: proof */
    PSC_PROOF_REFUSAL,   /* from either side: the reason, as text */
    PSC_N_PROOF_KINDS
} psc_proof_kind_t;

typedef enum psc_proof_state {
    PSC_PROOF_IDLE,
    PSC_PROOF_AWAIT_CHALLENGE, /* the connector's first state */
    PSC_PROOF_AWAIT_HELLO,     /* the acceptor's first state */
    PSC_PROOF_AWAIT_ANSWER,    /* the acceptor has sent CHALLENGE */
    PSC_PROOF_DONE,            /* accepted or refused; the token is wiped */
    PSC_N_PROOF_STATES
} psc_proof_state_t;

typedef enum psc_proof_verdict {
    PSC_PROOF_CONTINUES,
    PSC_PROOF_ACCEPTED,   /* the peer holds the token */
    PSC_PROOF_REFUSED, /* either side has refused; reply.why is the reason */
    PSC_PROOF_OUT_OF_TURN /* the state does not allow this kind */
} psc_proof_verdict_t;

typedef struct psc_proof {
    psc_proof_state_t state;
    /* endpoint ids: [0] of the connector, [1] of the acceptor */
    uint64_t ids[2];
    uint8_t nonces[2][PSC_PROOF_NONCE_SIZE];
    uint8_t token[PSC_TOKEN_SIZE];
} psc_proof_t;

typedef struct psc_proof_reply {
    psc_proof_verdict_t verdict;
    /* kind of the reply to be sent with the body; NONE if there is no reply */
    psc_proof_kind_t kind;
    size_t len;
    uint8_t body[PSC_PROOF_BODY_MAX];
    char why[PSC_REASON_MAX / 2];
} psc_proof_reply_t;

/* ---- proofs ---- */

/* Computes a proof. `side` is 'c' for the connector's proof and 'a' for the
 * acceptor's. */
static inline void psc_proof_make(const psc_proof_t *proof, char side,
                                  uint8_t hash_p[PSC_PROOF_SIZE])
{
    uint8_t text[72] = {(uint8_t)side};
    uint64_t ids[2] = {htole64(proof->ids[0]), htole64(proof->ids[1])};

    memcpy(text + 8, ids, sizeof(ids));
    memcpy(text + 24, proof->nonces, sizeof(proof->nonces));
    memcpy(text + 56, proof->token + PSC_SIPHASH_KEY_SIZE,
           PSC_TOKEN_SIZE - PSC_SIPHASH_KEY_SIZE);
    psc_siphash(proof->token, text, sizeof(text), hash_p);
    explicit_bzero(text, sizeof(text));
}

/* Returns true if `hash` is the proof of `side`, 'c' or 'a' as in
 * psc_proof_make(). Compares in constant time. */
static inline bool psc_proof_check(const psc_proof_t *proof, char side,
                                   const uint8_t *hash)
{
    uint8_t expected[PSC_PROOF_SIZE];

    psc_proof_make(proof, side, expected);
    return psc_siphash_equal(expected, hash);
}

/* ---- replies ---- */

static inline void psc_proof_reply_set(psc_proof_reply_t *reply,
                                       psc_proof_kind_t kind, const void *body,
                                       size_t len)
{
    reply->kind = kind;
    reply->len = len;
    memcpy(reply->body, body, len);
}

static inline void psc_proof_wipe(psc_proof_t *proof)
{
    proof->state = PSC_PROOF_DONE;
    explicit_bzero(proof->token, sizeof(proof->token));
}

static inline void psc_proof_end(psc_proof_t *proof, psc_proof_reply_t *reply,
                                 psc_proof_verdict_t verdict)
{
    psc_proof_wipe(proof);
    reply->verdict = verdict;
}

/* Ends the proof with a REFUSAL; `why` is shorter than PSC_PROOF_BODY_MAX. */
static inline void psc_proof_refuse(psc_proof_t *proof,
                                    psc_proof_reply_t *reply, const char *why)
{
    psc_proof_reply_set(reply, PSC_PROOF_REFUSAL, why, strlen(why));
    snprintf(reply->why, sizeof(reply->why), "%s", why);
    psc_proof_end(proof, reply, PSC_PROOF_REFUSED);
}

/* ---- one function for each message that a state allows ---- */

static inline void psc_proof_on_hello(psc_proof_t *proof, const uint8_t *body,
                                      size_t len, psc_proof_reply_t *reply)
{
    uint8_t challenge[PSC_PROOF_CHALLENGE_SIZE];

    if (len != PSC_PROOF_NONCE_SIZE) {
        psc_proof_refuse(proof, reply, "a hello of a wrong length");
        return;
    }
    memcpy(proof->nonces[0], body, PSC_PROOF_NONCE_SIZE);
    memcpy(challenge, proof->nonces[1], PSC_PROOF_NONCE_SIZE);
    psc_proof_make(proof, 'a', challenge + PSC_PROOF_NONCE_SIZE);
    psc_proof_reply_set(reply, PSC_PROOF_CHALLENGE, challenge,
                        sizeof(challenge));
    proof->state = PSC_PROOF_AWAIT_ANSWER;
}

static inline void psc_proof_on_challenge(psc_proof_t *proof,
                                          const uint8_t *body, size_t len,
                                          psc_proof_reply_t *reply)
{
    uint8_t hash[PSC_PROOF_SIZE];

    if (len != PSC_PROOF_CHALLENGE_SIZE) {
        psc_proof_refuse(proof, reply, "a challenge of a wrong length");
        return;
    }
    memcpy(proof->nonces[1], body, PSC_PROOF_NONCE_SIZE);
    if (!psc_proof_check(proof, 'a', body + PSC_PROOF_NONCE_SIZE)) {
        psc_proof_refuse(proof, reply,
                         "the acceptor does not hold the lane's token");
        return;
    }
    psc_proof_make(proof, 'c', hash);
    psc_proof_reply_set(reply, PSC_PROOF_ANSWER, hash, sizeof(hash));
    psc_proof_end(proof, reply, PSC_PROOF_ACCEPTED);
}

static inline void psc_proof_on_answer(psc_proof_t *proof, const uint8_t *body,
                                       size_t len, psc_proof_reply_t *reply)
{
    if (len != PSC_PROOF_SIZE || !psc_proof_check(proof, 'c', body))
        psc_proof_refuse(proof, reply,
                         "the connector does not hold the lane's token");
    else
        psc_proof_end(proof, reply, PSC_PROOF_ACCEPTED);
}

/* The peer's text is written to logs and exceptions, so unprintable characters
 * are replaced. */
static inline void psc_proof_on_refusal(psc_proof_t *proof, const uint8_t *body,
                                        size_t len, psc_proof_reply_t *reply)
{
    int at = snprintf(reply->why, sizeof(reply->why), "the peer refuses: ");
    char *why = reply->why + at;
    size_t room = sizeof(reply->why) - (size_t)at - 1;
    size_t n = len < room ? len : room;

    for (size_t i = 0; i < n; i++)
        why[i] = body[i] >= ' ' && body[i] < 127 ? (char)body[i] : '?';
    why[n] = 0;
    psc_proof_end(proof, reply, PSC_PROOF_REFUSED);
}

/* ---- the functions that a transport calls ---- */

/* Starts the token proof. Returns false if there are no random bytes. `own_id`
 * and `peer_id` are the numbers of the two endpoints, as their addresses give
 * them. A connector then sends psc_proof_hello() as its HELLO, and again only
 * if that HELLO was lost: an acceptor that gets a second one fails. */
static inline bool psc_proof_begin(psc_proof_t *proof, psc_role_t role,
                                   const uint8_t token[PSC_TOKEN_SIZE],
                                   uint64_t own_id, uint64_t peer_id)
{
    bool acceptor = role == PSC_ROLE_ACCEPTOR;

    memcpy(proof->token, token, PSC_TOKEN_SIZE);
    proof->ids[acceptor] = own_id;
    proof->ids[!acceptor] = peer_id;
    proof->state = acceptor ? PSC_PROOF_AWAIT_HELLO : PSC_PROOF_AWAIT_CHALLENGE;
    return getrandom(proof->nonces[acceptor], PSC_PROOF_NONCE_SIZE, 0) ==
           (ssize_t)PSC_PROOF_NONCE_SIZE;
}

/* Returns the body of the HELLO, PSC_PROOF_NONCE_SIZE bytes. */
static inline const uint8_t *psc_proof_hello(const psc_proof_t *proof)
{
    return proof->nonces[0];
}

/* Processes a message of the token proof. *reply gets the verdict, and the
 * message to send. */
static inline void psc_proof_receive(psc_proof_t *proof, unsigned kind,
                                     const uint8_t *body, size_t len,
                                     psc_proof_reply_t *reply)
{
    typedef void (*step_t)(psc_proof_t *, const uint8_t *, size_t,
                           psc_proof_reply_t *);
    static const step_t steps[PSC_N_PROOF_STATES][PSC_N_PROOF_KINDS] = {
        [PSC_PROOF_AWAIT_CHALLENGE] = {[PSC_PROOF_CHALLENGE] =
                                           psc_proof_on_challenge,
                                       [PSC_PROOF_REFUSAL] =
                                           psc_proof_on_refusal},
        [PSC_PROOF_AWAIT_HELLO] = {[PSC_PROOF_HELLO] = psc_proof_on_hello,
                                   [PSC_PROOF_REFUSAL] = psc_proof_on_refusal},
        [PSC_PROOF_AWAIT_ANSWER] = {[PSC_PROOF_ANSWER] = psc_proof_on_answer,
                                    [PSC_PROOF_REFUSAL] = psc_proof_on_refusal},
    };
    step_t step = kind < PSC_N_PROOF_KINDS ? steps[proof->state][kind] : NULL;

    reply->verdict = step ? PSC_PROOF_CONTINUES : PSC_PROOF_OUT_OF_TURN;
    reply->kind = PSC_PROOF_NONE;
    if (step)
        step(proof, body, len, reply);
}

#endif
