/* The receiving half of an endpoint: packets are put in order, and the messages
 * in them are handed upwards. Every field is checked before it is used. A
 * packet to an endpoint that does not exist is answered with GW_GONE. */
#include "agent.h"

#include <string.h>

static void in_free(gw_agent_t *agent, psc_message_t *message)
{
    agent->api->message_free(agent->worker, message);
}

/* ---- messages ---- */

static void in_write(gw_ep_t *ep, const uint8_t *data, size_t len)
{
    uint64_t skip = ep->arriving.begun;

    ep->arriving.begun += len;
    ep->arriving.left -= len;
    for (size_t i = 0; i < ep->arriving.dest.n_iov && len > 0; i++) {
        const psc_iov_t *piece = &ep->arriving.dest.iov[i];
        size_t part;

        if (skip >= piece->len) {
            skip -= piece->len;
            continue;
        }
        part = piece->len - skip < len ? piece->len - skip : len;
        memcpy((uint8_t *)piece->base + skip, data, part);
        data += part;
        len -= part;
        skip = 0;
    }
}

static void in_end(gw_ep_t *ep)
{
    ep->arriving.active = false;
    if (ep->state == GW_EP_UP)
        ep->super.iface->up->am_end(&ep->super, ep->arriving.dest.cookie);
}

static bool in_first(gw_ep_t *ep, const uint8_t *data, size_t len)
{
    const psc_upcalls_t *up = ep->super.iface->up;
    uint64_t header[PSC_AM_HEADER_MAX / 8];
    gw_message_t message;

    if (ep->arriving.active || len < sizeof message)
        return false;
    memcpy(&message, data, sizeof message);
    data += sizeof message;
    len -= sizeof message;
    if (message.header_len > PSC_AM_HEADER_MAX || message.header_len > len)
        return false;
    memcpy(header, data, message.header_len);
    data += message.header_len;
    len -= message.header_len;
    if (len > message.len)
        return false;
    if (len == message.len) {
        psc_am_t am = {.id = message.id,
                       .header_len = message.header_len,
                       .header = header,
                       .payload = data,
                       .len = len};

        up->am_recv(&ep->super, &am);
        return true;
    }
    ep->arriving.dest = (psc_dest_t){0};
    ep->arriving.begun = 0;
    ep->arriving.left = message.len;
    ep->arriving.active = true;
    up->am_begin(&ep->super, message.id, header, message.header_len,
                 message.len, &ep->arriving.dest);
    if (ep->state == GW_EP_UP)
        in_write(ep, data, len);
    return true;
}

static bool in_more(gw_ep_t *ep, const uint8_t *data, size_t len)
{
    if (!ep->arriving.active || len > ep->arriving.left)
        return false;
    in_write(ep, data, len);
    if (ep->arriving.left == 0)
        in_end(ep);
    return true;
}

static void in_prove(gw_ep_t *ep, const psc_message_t *message)
{
    const gw_head_t *head = message->header;
    const uint8_t *data = message->payload;

    if (head->flags & GW_PROOF && message->len > 0)
        gw_ep_take_proof(ep, data[0], data + 1, message->len - 1);
    else
        gw_ep_take_proof(ep, PSC_PROOF_NONE, NULL, 0);
}

static void in_packet(gw_ep_t *ep, const psc_message_t *message)
{
    const gw_head_t *head = message->header;
    bool good = true;

    if (head->flags & GW_ACK_NOW)
        ep->answer.now = true;
    if (ep->state == GW_EP_PROVING)
        in_prove(ep, message);
    else if (ep->state != GW_EP_UP)
        return; /* the endpoint is closing: drop the packet */
    else if (head->flags & GW_BYE)
        gw_ep_fail(ep, PSC_ERR_PEER_LOST, "the peer ended the connection");
    else if (head->flags & GW_FIRST)
        good = in_first(ep, message->payload, message->len);
    else
        good = in_more(ep, message->payload, message->len);
    if (!good)
        gw_ep_fail(ep, PSC_ERR_PROTOCOL, "the peer sent an invalid message");
}

void gw_in_deliver(gw_ep_t *ep)
{
    gw_agent_t *agent = gw_agent_of(ep);
    psc_message_t *message;

    if (ep->state == GW_EP_PROVING)
        gw_ep_greet(ep);
    while (ep->state != GW_EP_NEW && !ep->freed &&
           (message = psc_reorder_take(&ep->order))) {
        ep->answer.unanswered++;
        ep->answer.owed = true;
        in_packet(ep, message);
        in_free(agent, message);
    }
}

void gw_in_forget(gw_ep_t *ep)
{
    psc_message_t *message;

    while ((message = psc_reorder_drop(&ep->order)))
        in_free(gw_agent_of(ep), message);
}

/* ---- packets ---- */

/* Keeps a numbered packet until all packets before it have arrived. Returns
 * false if it is a duplicate, or further ahead than the peer may send. */
static bool in_keep(gw_ep_t *ep, psc_message_t *message)
{
    const gw_head_t *head = message->header;

    if (psc_reorder_put(&ep->order, head->seq, message) <= PSC_REORDER_EARLY)
        return true;
    /* The acknowledgement of this packet may be lost: send one again. */
    ep->answer.now = ep->answer.owed = true;
    return false;
}

/* Answers a packet to an endpoint that does not exist, so that the peer does
 * not wait for an acknowledgement. */
static void in_gone(gw_agent_t *agent, const psc_message_t *message)
{
    const gw_head_t *head = message->header;
    gw_packet_t *packet;
    gw_path_t path = {.conn = message->source};

    if (head->kind != GW_DATA && head->kind != GW_PROBE)
        return;
    packet = gw_packet_create(agent, NULL, 0);
    if (!packet)
        return;
    packet->head = (gw_head_t){.kind = GW_GONE,
                               .to_module = head->from_module,
                               .from_module = agent->module,
                               .to_node = head->from_node,
                               .from_node = agent->node,
                               .to_ep = head->from_ep,
                               .from_ep = head->to_ep};
    if (agent->api->conn_state(path.conn) == PSC_CONN_UP)
        gw_packet_send(packet, &path);
    gw_packet_drop(packet);
}

static void in_unreachable(gw_ep_t *ep, const gw_head_t *head)
{
    uint32_t path = head->path % GW_PATHS_MAX;

    ep->way.unreachable |= 1u << path;
    gw_out_again(ep, 1u << path, false, 0);
}

static bool in_for(const gw_ep_t *ep, const gw_head_t *head)
{
    if (ep->state == GW_EP_NEW) /* the peer is not known yet: keep the packet */
        return head->kind == GW_DATA;
    return head->from_node == ep->peer.node &&
           (head->kind == GW_UNREACHABLE || head->from_ep == ep->peer.ep);
}

/* Handles everything in a packet but its payload. Returns true if the packet is
 * numbered: only numbered packets have a payload. */
static bool in_signal(gw_ep_t *ep, const gw_head_t *head)
{
    if (head->kind == GW_UNREACHABLE) {
        in_unreachable(ep, head);
        return false;
    }
    if (head->kind == GW_GONE) {
        if (ep->state < GW_EP_CLOSING)
            gw_ep_fail(ep, PSC_ERR_PEER_LOST, "the peer's end is gone");
        else
            gw_out_abandon(ep);
        return false;
    }
    if (ep->state != GW_EP_NEW)
        gw_out_acknowledged(ep, head->ack, head->limit);
    if (head->kind == GW_ACK && head->mark)
        gw_out_again(ep, 1u << head->path % GW_PATHS_MAX, true, head->mark);
    return head->kind == GW_DATA;
}

/* Answers a probe; the answer names the path that the probe was sent on. */
static void in_probed(gw_ep_t *ep, const gw_head_t *head)
{
    gw_path_t *path = gw_path_choose(ep, 0);

    if (path)
        gw_packet_signal(ep, path, GW_ACK, head->path, head->mark);
}

void gw_in_take(gw_agent_t *agent, psc_message_t *message)
{
    const gw_head_t *head = message->header;
    gw_ep_t *ep = NULL;
    bool kept = false;

    agent->handled++;
    if (message->header_len == sizeof *head && head->to_node == agent->node) {
        ep = gw_ep_find(agent, head->to_ep);
        if (!ep)
            in_gone(agent, message);
    }
    if (ep && in_for(ep, head)) {
        if (in_signal(ep, head))
            kept = in_keep(ep, message);
        else if (head->kind == GW_PROBE && ep->state != GW_EP_NEW)
            in_probed(ep, head);
        gw_ep_due(ep);
        if (kept && psc_reorder_next(&ep->order))
            gw_in_deliver(ep);
    }
    if (!kept)
        in_free(agent, message);
}

/* ---- acknowledgements ---- */

void gw_in_answer(gw_agent_t *agent)
{
    psc_list_for_each(ep, &agent->due, gw_ep_t, due_link) {
        psc_list_remove(&ep->due_link);
        if (ep->state == GW_EP_NEW || ep->freed)
            continue;
        gw_out_flush(ep);
        if (!ep->answer.now && ep->answer.unanswered < agent->pending)
            continue;
        gw_path_t *path = gw_path_choose(ep, 0);
        if (!path || !ep->answer.owed)
            continue;
        ep->answer.owed = ep->answer.now = false;
        ep->answer.unanswered = 0;
        gw_packet_signal(ep, path, GW_ACK, (uint8_t)(path - agent->paths), 0);
    }
}
