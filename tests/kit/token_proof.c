/* The token proof: two ends that hold the token accept each other, and no
 * message of a third party makes an end accept. */
#include <string.h>

#include "kit.h"
#include "pscompy/transport/kit/token_proof.h"

enum { CONNECTOR, ACCEPTOR };

static const uint8_t token[PSC_TOKEN_SIZE] = "a token of thirty-two bytes, so";

typedef struct message {
    unsigned kind;
    size_t len;
    uint8_t body[PSC_PROOF_BODY_MAX];
} message_t;

static message_t hello_of(const psc_proof_t *proof)
{
    message_t hello = {PSC_PROOF_HELLO, PSC_PROOF_NONCE_SIZE, {0}};

    memcpy(hello.body, psc_proof_hello(proof), PSC_PROOF_NONCE_SIZE);
    return hello;
}

static psc_proof_verdict_t receive(psc_proof_t *proof, const message_t *in,
                                   message_t *out_p)
{
    psc_proof_reply_t reply;

    psc_proof_receive(proof, in->kind, in->body, in->len, &reply);
    CHECK(reply.kind == PSC_PROOF_NONE || reply.len <= PSC_PROOF_BODY_MAX);
    if (reply.kind != PSC_PROOF_NONE) {
        out_p->kind = reply.kind;
        out_p->len = reply.len;
        memcpy(out_p->body, reply.body, reply.len);
    }
    if (proof->state == PSC_PROOF_DONE)
        for (size_t i = 0; i < PSC_TOKEN_SIZE; i++)
            CHECK(proof->token[i] == 0);
    return reply.verdict;
}

static void begin(psc_proof_t ends[2], const uint8_t *other)
{
    CHECK(psc_proof_begin(&ends[CONNECTOR], PSC_ROLE_CONNECTOR, token, 5, 9));
    CHECK(psc_proof_begin(&ends[ACCEPTOR], PSC_ROLE_ACCEPTOR, other, 9, 5));
}

static void both_accept(void)
{
    psc_proof_t ends[2];
    message_t hello, challenge, answer;

    begin(ends, token);
    hello = hello_of(&ends[CONNECTOR]);
    CHECK(receive(&ends[ACCEPTOR], &hello, &challenge) == PSC_PROOF_CONTINUES);
    CHECK(receive(&ends[CONNECTOR], &challenge, &answer) == PSC_PROOF_ACCEPTED);
    CHECK(receive(&ends[ACCEPTOR], &answer, &hello) == PSC_PROOF_ACCEPTED);
}

static void another_token_is_refused(void)
{
    for (size_t bit = 0; bit < 8 * PSC_TOKEN_SIZE; bit++) {
        uint8_t other[PSC_TOKEN_SIZE];
        psc_proof_t ends[2];
        message_t hello, challenge, answer = {0};

        memcpy(other, token, sizeof(other));
        other[bit / 8] ^= (uint8_t)(1u << bit % 8);
        begin(ends, other);
        hello = hello_of(&ends[CONNECTOR]);
        receive(&ends[ACCEPTOR], &hello, &challenge);
        CHECK(receive(&ends[CONNECTOR], &challenge, &answer) ==
              PSC_PROOF_REFUSED);
        CHECK(answer.kind == PSC_PROOF_REFUSAL);
        CHECK(receive(&ends[ACCEPTOR], &answer, &hello) == PSC_PROOF_REFUSED);
    }
}

/* The acceptor's own hash, sent back to it, is refused. */
static void a_reflection_is_refused(void)
{
    psc_proof_t ends[2];
    message_t hello, challenge,
        answer = {PSC_PROOF_ANSWER, PSC_PROOF_SIZE, {0}};

    begin(ends, token);
    hello = hello_of(&ends[CONNECTOR]);
    receive(&ends[ACCEPTOR], &hello, &challenge);
    memcpy(answer.body, challenge.body + PSC_PROOF_NONCE_SIZE, PSC_PROOF_SIZE);
    CHECK(receive(&ends[ACCEPTOR], &answer, &hello) == PSC_PROOF_REFUSED);
}

/* Messages of an earlier attempt with the same token are replayed. */
static void a_replay_is_refused(void)
{
    psc_proof_t old[2], fresh[2];
    message_t hello, challenge, answer, said;

    begin(old, token);
    hello = hello_of(&old[CONNECTOR]);
    receive(&old[ACCEPTOR], &hello, &challenge);
    receive(&old[CONNECTOR], &challenge, &answer);
    begin(fresh, token);
    CHECK(receive(&fresh[CONNECTOR], &challenge, &said) == PSC_PROOF_REFUSED);
    CHECK(receive(&fresh[ACCEPTOR], &hello, &said) == PSC_PROOF_CONTINUES);
    CHECK(receive(&fresh[ACCEPTOR], &answer, &said) == PSC_PROOF_REFUSED);
}

/* Both hold the token of another lane between the same two processes. */
static void another_endpoint_is_refused(void)
{
    psc_proof_t ends[2];
    message_t hello, challenge, answer;

    begin(ends, token);
    ends[ACCEPTOR].ids[ACCEPTOR] = 10;
    hello = hello_of(&ends[CONNECTOR]);
    receive(&ends[ACCEPTOR], &hello, &challenge);
    CHECK(receive(&ends[CONNECTOR], &challenge, &answer) == PSC_PROOF_REFUSED);
}

static message_t random_message(uint64_t *random, const message_t *seen,
                                unsigned n_seen)
{
    message_t message = {0};

    if (n_seen > 0 && random_below(random, 2))
        message = seen[random_below(random, n_seen)];
    if (random_below(random, 3) == 0)
        message.kind = random_below(random, PSC_N_PROOF_KINDS + 2);
    if (random_below(random, 4) == 0)
        message.len = random_below(random, PSC_PROOF_BODY_MAX + 1);
    if (random_below(random, 2))
        message.body[random_below(random, PSC_PROOF_BODY_MAX)] ^=
            (uint8_t)(1 + random_below(random, 255));
    return message;
}

/* An attacker without the token changes, repeats and invents messages to one
 * end that holds it, and sees the replies. */
static void nobody_else_is_accepted(uint64_t *random, unsigned role)
{
    psc_proof_t ends[2];
    message_t seen[16];
    unsigned n_seen = 0;

    begin(ends, token);
    if (role == CONNECTOR)
        seen[n_seen++] = hello_of(&ends[CONNECTOR]);
    for (unsigned i = 0; i < 14; i++) {
        message_t in = random_message(random, seen, n_seen);
        message_t out = {0};

        CHECK(receive(&ends[role], &in, &out) != PSC_PROOF_ACCEPTED);
        if (out.kind != PSC_PROOF_NONE)
            seen[n_seen++] = out;
    }
}

/* argv: seed, rounds */
int main(int argc, char **argv)
{
    uint64_t random = argc > 1 ? strtoull(argv[1], NULL, 10) + 1 : 1;
    unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;

    both_accept();
    another_token_is_refused();
    a_reflection_is_refused();
    a_replay_is_refused();
    another_endpoint_is_refused();
    for (unsigned i = 0; i < rounds; i++)
        nobody_else_is_accepted(&random, i % 2);
    return 0;
}
