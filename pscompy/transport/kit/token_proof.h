/* Two ends of a lane prove to each other that they hold its token, over
 * whatever carries messages between them:
 *
 *   connector  HELLO(nonce) ->
 *              <- CHALLENGE(nonce, proof)   acceptor
 *              PROOF(proof) ->              connector is up, then acceptor
 *
 * Either may refuse instead, and says why. Nothing here sends or waits: a
 * transport hands in what arrived, sends the reply, and acts on the verdict.
 * Header only. */
#ifndef PSCOMPY_PARTS_MEET_H
#define PSCOMPY_PARTS_MEET_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/random.h>

#include "pscompy/transport/kit/siphash.h"
#include "pscompy/transport/transport.h"

#define PSC_MEET_NONCE_SIZE 16u
#define PSC_MEET_BODY_MAX 64u

/* A transport numbers its own kinds from PSC_N_MEET_KINDS on. */
typedef enum psc_meet_kind {
    PSC_MEET_NOTHING,
    PSC_MEET_HELLO,     /* connector: nonce */
    PSC_MEET_CHALLENGE, /* acceptor: nonce, proof */
    PSC_MEET_PROOF,     /* connector: proof */
    PSC_MEET_REFUSAL,   /* no, because */
    PSC_N_MEET_KINDS
} psc_meet_kind_t;

typedef enum psc_meet_stage {
    PSC_MEET_IDLE,
    PSC_MEET_KNOCKING, /* connector: the hello is out */
    PSC_MEET_AWAITING, /* acceptor: nobody called yet */
    PSC_MEET_PROVING,  /* acceptor: the challenge is out */
    PSC_MEET_OVER,     /* met, or refused */
    PSC_N_MEET_STAGES
} psc_meet_stage_t;

typedef enum psc_meet_verdict {
    PSC_MEET_GOES_ON,
    PSC_MEET_MET,     /* the peer holds the token */
    PSC_MEET_REFUSED, /* by either side: reply.why */
    PSC_MEET_ASTRAY   /* a message out of turn */
} psc_meet_verdict_t;

typedef struct psc_meet {
    psc_meet_stage_t stage;
    uint64_t ids[2]; /* connector's, acceptor's: what a proof is bound to */
    uint8_t nonces[2][PSC_MEET_NONCE_SIZE]; /* likewise */
    uint8_t token[PSC_TOKEN_SIZE];          /* wiped when all is over */
} psc_meet_t;

typedef struct psc_meet_reply {
    psc_meet_verdict_t verdict;
    psc_meet_kind_t kind; /* to be sent with the body; or NOTHING */
    size_t len;
    uint8_t body[PSC_MEET_BODY_MAX];
    char why[PSC_REASON_MAX / 2];
} psc_meet_reply_t;

typedef struct psc_meet_challenge {
    uint8_t nonce[PSC_MEET_NONCE_SIZE];
    uint8_t proof[PSC_SIPHASH_SIZE];
} psc_meet_challenge_t;

/* ---- proofs ---- */

/* Bound to both ends, to this meeting, and to who says it ('c' or 'a'). */
static inline void psc_meet_prove(const psc_meet_t *meet, char who,
                                  uint8_t proof_p[PSC_SIPHASH_SIZE])
{
    uint8_t text[72] = {(uint8_t)who};

    memcpy(text + 8, meet->ids, sizeof(meet->ids));
    memcpy(text + 24, meet->nonces, sizeof(meet->nonces));
    memcpy(text + 56, meet->token + PSC_SIPHASH_KEY_SIZE,
           PSC_TOKEN_SIZE - PSC_SIPHASH_KEY_SIZE);
    psc_siphash(meet->token, text, sizeof(text), proof_p);
}

static inline bool psc_meet_proves(const psc_meet_t *meet, char who,
                                   const uint8_t *proof)
{
    uint8_t right[PSC_SIPHASH_SIZE];

    psc_meet_prove(meet, who, right);
    return psc_siphash_equal(right, proof);
}

/* ---- replies ---- */

static inline void psc_meet_say(psc_meet_reply_t *reply, psc_meet_kind_t kind,
                                const void *body, size_t len)
{
    reply->kind = kind;
    reply->len = len;
    memcpy(reply->body, body, len);
}

static inline void psc_meet_end(psc_meet_t *meet, psc_meet_reply_t *reply,
                                psc_meet_verdict_t verdict)
{
    meet->stage = PSC_MEET_OVER;
    explicit_bzero(meet->token, sizeof(meet->token));
    reply->verdict = verdict;
}

/* `why` is shorter than PSC_MEET_BODY_MAX. */
static inline void psc_meet_refuse(psc_meet_t *meet, psc_meet_reply_t *reply,
                                   const char *why)
{
    psc_meet_say(reply, PSC_MEET_REFUSAL, why, strlen(why));
    snprintf(reply->why, sizeof(reply->why), "%s", why);
    psc_meet_end(meet, reply, PSC_MEET_REFUSED);
}

/* ---- stages ---- */

static inline void psc_meet_hello(psc_meet_t *meet, const uint8_t *body,
                                  size_t len, psc_meet_reply_t *reply)
{
    psc_meet_challenge_t challenge;

    if (len != PSC_MEET_NONCE_SIZE) {
        psc_meet_refuse(meet, reply, "a hello of a wrong length");
        return;
    }
    memcpy(meet->nonces[0], body, PSC_MEET_NONCE_SIZE);
    memcpy(challenge.nonce, meet->nonces[1], PSC_MEET_NONCE_SIZE);
    psc_meet_prove(meet, 'a', challenge.proof);
    psc_meet_say(reply, PSC_MEET_CHALLENGE, &challenge, sizeof(challenge));
    meet->stage = PSC_MEET_PROVING;
}

static inline void psc_meet_challenged(psc_meet_t *meet, const uint8_t *body,
                                       size_t len, psc_meet_reply_t *reply)
{
    psc_meet_challenge_t challenge;
    uint8_t proof[PSC_SIPHASH_SIZE];

    if (len != sizeof(challenge)) {
        psc_meet_refuse(meet, reply, "a challenge of a wrong length");
        return;
    }
    memcpy(&challenge, body, sizeof(challenge));
    memcpy(meet->nonces[1], challenge.nonce, PSC_MEET_NONCE_SIZE);
    if (!psc_meet_proves(meet, 'a', challenge.proof)) {
        psc_meet_refuse(meet, reply,
                        "the acceptor does not hold the lane's token");
        return;
    }
    psc_meet_prove(meet, 'c', proof);
    psc_meet_say(reply, PSC_MEET_PROOF, proof, sizeof(proof));
    psc_meet_end(meet, reply, PSC_MEET_MET);
}

static inline void psc_meet_proved(psc_meet_t *meet, const uint8_t *body,
                                   size_t len, psc_meet_reply_t *reply)
{
    if (len != PSC_SIPHASH_SIZE || !psc_meet_proves(meet, 'c', body))
        psc_meet_refuse(meet, reply,
                        "the connector does not hold the lane's token");
    else
        psc_meet_end(meet, reply, PSC_MEET_MET);
}

/* The peer's words go to logs and exceptions: only what can be printed. */
static inline void psc_meet_refused(psc_meet_t *meet, const uint8_t *body,
                                    size_t len, psc_meet_reply_t *reply)
{
    int at = snprintf(reply->why, sizeof(reply->why), "the peer refuses: ");
    char *why = reply->why + at;
    size_t room = sizeof(reply->why) - (size_t)at - 1;
    size_t n = len < room ? len : room;

    for (size_t i = 0; i < n; i++)
        why[i] = body[i] >= ' ' && body[i] < 127 ? (char)body[i] : '?';
    why[n] = 0;
    psc_meet_end(meet, reply, PSC_MEET_REFUSED);
}

/* ---- what a transport calls ---- */

/* False: there are no random bytes. A connector sends nonces[0] as its HELLO;
 * it may do so again until somebody answers. */
static inline bool psc_meet_begin(psc_meet_t *meet, psc_role_t role,
                                  const uint8_t token[PSC_TOKEN_SIZE],
                                  uint64_t own_id, uint64_t peer_id)
{
    bool acceptor = role == PSC_ROLE_ACCEPTOR;

    memcpy(meet->token, token, PSC_TOKEN_SIZE);
    meet->ids[acceptor] = own_id;
    meet->ids[!acceptor] = peer_id;
    meet->stage = acceptor ? PSC_MEET_AWAITING : PSC_MEET_KNOCKING;
    return getrandom(meet->nonces[acceptor], PSC_MEET_NONCE_SIZE, 0) ==
           (ssize_t)PSC_MEET_NONCE_SIZE;
}

/* A message of one of the kinds above has arrived. */
static inline void psc_meet_take(psc_meet_t *meet, unsigned kind,
                                 const uint8_t *body, size_t len,
                                 psc_meet_reply_t *reply)
{
    typedef void (*step_t)(psc_meet_t *, const uint8_t *, size_t,
                           psc_meet_reply_t *);
    static const step_t steps[PSC_N_MEET_STAGES][PSC_N_MEET_KINDS] = {
        [PSC_MEET_KNOCKING] = {[PSC_MEET_CHALLENGE] = psc_meet_challenged,
                               [PSC_MEET_REFUSAL] = psc_meet_refused},
        [PSC_MEET_AWAITING] = {[PSC_MEET_HELLO] = psc_meet_hello,
                               [PSC_MEET_REFUSAL] = psc_meet_refused},
        [PSC_MEET_PROVING] = {[PSC_MEET_PROOF] = psc_meet_proved,
                              [PSC_MEET_REFUSAL] = psc_meet_refused},
    };
    step_t step =
        kind < PSC_N_MEET_KINDS ? steps[meet->stage][kind] : NULL;

    reply->verdict = step ? PSC_MEET_GOES_ON : PSC_MEET_ASTRAY;
    reply->kind = PSC_MEET_NOTHING;
    if (step)
        step(meet, body, len, reply);
}

#endif
