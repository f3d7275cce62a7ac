/* Makes the token proof (transport/kit/token_proof.h) available to links of
 * transports in Python. */
#include <stdlib.h>

#include "pscompy/transport/kit/token_proof.h"
#include "pump.h"

struct bridge_proof {
    psc_proof_t proof;
    psc_proof_reply_t reply; /* reply to the last message */
};

bridge_proof_t *bridge_proof_create(int role, const uint8_t *token,
                                    uint64_t own, uint64_t peer)
{
    bridge_proof_t *self = calloc(1, sizeof(*self));

    if (self &&
        psc_proof_begin(&self->proof, (psc_role_t)role, token, own, peer))
        return self;
    bridge_proof_destroy(self);
    return NULL;
}

void bridge_proof_destroy(bridge_proof_t *self)
{
    if (self)
        psc_proof_wipe(&self->proof);
    free(self);
}

const uint8_t *bridge_proof_hello(const bridge_proof_t *self)
{
    return psc_proof_hello(&self->proof);
}

int bridge_proof_receive(bridge_proof_t *self, int kind, const uint8_t *body,
                         size_t len)
{
    psc_proof_receive(&self->proof, (unsigned)kind, body, len, &self->reply);
    if (self->reply.verdict == PSC_PROOF_OUT_OF_TURN ||
        self->reply.verdict == PSC_PROOF_REFUSED)
        return -1;
    return self->reply.kind == PSC_PROOF_NONE ? 0 : (int)self->reply.len;
}

const uint8_t *bridge_proof_reply(const bridge_proof_t *self)
{
    return self->reply.body;
}

const char *bridge_proof_why(const bridge_proof_t *self)
{
    return self->reply.verdict == PSC_PROOF_REFUSED
               ? self->reply.why
               : "the token proof is out of turn";
}
