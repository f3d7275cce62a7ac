/* Endpoints: addresses, connecting, failures. */
#include "agent.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SLOT_MASK (GW_ENDPOINTS_MAX - 1)
/* number of packets that are sent before the peer reports its limit */
#define LIMIT_INITIAL 4u

/* ---- the table ---- */

gw_ep_t *gw_ep_find(gw_agent_t *agent, uint64_t id)
{
    uint32_t slot = id & SLOT_MASK;
    gw_ep_t *ep = slot < agent->table_size ? agent->table[slot] : NULL;

    return ep && ep->id == id ? ep : NULL;
}

static bool table_grow(gw_agent_t *agent)
{
    uint32_t size = agent->table_size ? 2 * agent->table_size : 64;
    gw_ep_t **table;

    if (size > GW_ENDPOINTS_MAX)
        return false;
    table = realloc(agent->table, size * sizeof(gw_ep_t *));
    if (!table)
        return false;
    memset(table + agent->table_size, 0,
           (size - agent->table_size) * sizeof(gw_ep_t *));
    agent->table = table;
    agent->table_size = size;
    return true;
}

/* The upper bits of an id are random, so that it cannot be guessed. */
static bool table_add(gw_agent_t *agent, gw_ep_t *ep)
{
    uint32_t slot = 0;

    if (getrandom(&ep->id, sizeof ep->id, 0) != sizeof ep->id)
        return false;
    if (agent->n_eps == agent->table_size && !table_grow(agent))
        return false;
    while (agent->table[slot])
        slot++;
    ep->id = (ep->id & ~(uint64_t)SLOT_MASK) | slot;
    agent->table[slot] = ep;
    agent->n_eps++;
    return true;
}

void gw_ep_remove(gw_ep_t *ep)
{
    gw_agent_t *agent = gw_agent_of(ep);

    agent->table[ep->id & SLOT_MASK] = NULL;
    agent->n_eps--;
}

/* Sends a message of the token proof: one byte for its kind, then its body. */
static void ep_send_proof(gw_ep_t *ep, psc_proof_kind_t kind,
                          const uint8_t *body, size_t len)
{
    uint8_t data[1 + PSC_PROOF_BODY_MAX] = {(uint8_t)kind};

    memcpy(data + 1, body, len);
    if (gw_out_control(ep, GW_PROOF | GW_ACK_NOW, data, 1 + len) != PSC_OK)
        gw_ep_fail(ep, PSC_ERR_NO_MEMORY, "no memory for the proof");
}

void gw_ep_greet(gw_ep_t *ep)
{
    if (!ep->hello_due)
        return;
    ep->hello_due = false;
    ep_send_proof(ep, PSC_PROOF_HELLO, psc_proof_hello(&ep->proof),
                  PSC_PROOF_NONCE_SIZE);
}

void gw_ep_take_proof(gw_ep_t *ep, unsigned kind, const uint8_t *body,
                      size_t len)
{
    psc_proof_reply_t reply;

    psc_proof_receive(&ep->proof, kind, body, len, &reply);
    if (reply.kind != PSC_PROOF_NONE)
        ep_send_proof(ep, reply.kind, reply.body, reply.len);
    if (reply.verdict == PSC_PROOF_CONTINUES || ep->state != GW_EP_PROVING)
        return;
    if (reply.verdict == PSC_PROOF_ACCEPTED) {
        ep->state = GW_EP_UP;
        ep->super.iface->up->ep_up(&ep->super);
        return;
    }
    /* the message that refuses the proof is retransmitted until the peer has
     * acknowledged it */
    ep->state = GW_EP_CLOSING;
    ep->super.iface->up->ep_failed(&ep->super, PSC_ERR_CONNECT,
                                   reply.verdict == PSC_PROOF_REFUSED
                                       ? reply.why
                                       : "the token proof is out of turn");
}

/* ---- the contract ---- */

psc_status_t gw_ep_create(psc_iface_t *iface, void *user, psc_ep_t **ep_p)
{
    gw_agent_t *agent = (gw_agent_t *)iface;
    gw_ep_t *ep = calloc(1, sizeof *ep);

    if (!ep)
        return PSC_ERR_NO_MEMORY;
    ep->order.limit = agent->tokens;
    ep->order.size = psc_reorder_size(agent->tokens);
    ep->order.held = calloc(ep->order.size, sizeof *ep->order.held);
    if (!ep->order.held || !table_add(agent, ep)) {
        free(ep->order.held);
        free(ep);
        return PSC_ERR_NO_MEMORY;
    }
    ep->super = (psc_ep_t){.iface = iface, .user = user};
    ep->out.limit = LIMIT_INITIAL;
    ep->way.home = GW_PATHS_MAX;
    psc_list_init(&ep->out.unacked);
    psc_list_init(&ep->out.ops);
    psc_list_init(&ep->due_link);
    psc_list_push(&agent->eps, &ep->link);
    *ep_p = &ep->super;
    return PSC_OK;
}

psc_status_t gw_ep_address(psc_ep_t *self, uint8_t *bytes, size_t *len_p)
{
    gw_ep_t *ep = (gw_ep_t *)self;
    gw_address_t address = {.node = gw_agent_of(ep)->node,
                            .ep = ep->id,
                            .module = gw_agent_of(ep)->module};

    if (*len_p < sizeof address)
        return PSC_ERR_INVALID;
    memcpy(bytes, &address, sizeof address);
    *len_p = sizeof address;
    return PSC_OK;
}

psc_status_t gw_ep_connect(psc_ep_t *self, const psc_connect_params_t *params)
{
    gw_ep_t *ep = (gw_ep_t *)self;
    gw_address_t address;

    if (params->role == PSC_ROLE_SELF)
        return PSC_ERR_UNSUPPORTED;
    if (params->address_len != sizeof address)
        return PSC_ERR_INVALID;
    memcpy(&address, params->address, sizeof address);
    if (!psc_proof_begin(&ep->proof, params->role, params->token, ep->id,
                         address.ep))
        return PSC_ERR_TRANSPORT;
    ep->peer = address;
    ep->state = GW_EP_PROVING;
    ep->hello_due = params->role == PSC_ROLE_CONNECTOR;
    gw_ep_due(ep); /* the next progress sends the hello (the first message of
                      the token proof), or reads the peer's if that has
                      arrived */
    return PSC_INPROGRESS;
}

void gw_ep_fail(gw_ep_t *ep, psc_status_t status, const char *reason)
{
    gw_ep_state_t before = ep->state;

    if (before == GW_EP_ENDED)
        return;
    ep->state = GW_EP_ENDED;
    gw_out_abandon(ep);
    if (before == GW_EP_CLOSING)
        return;
    if (before == GW_EP_PROVING && status == PSC_ERR_PEER_LOST)
        status = PSC_ERR_CONNECT;
    ep->super.iface->up->ep_failed(&ep->super, status, reason);
}
