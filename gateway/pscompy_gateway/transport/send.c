/* The sending half of an endpoint: messages become numbered packets, which are
 * kept until the peer has acknowledged them, and sent again if they may be
 * lost. Short messages are copied, at most PSP_GW_WINDOW bytes of them; long
 * ones stay in the caller's buffers until the peer has them. */
#include "agent.h"

#include <stdlib.h>
#include <string.h>

#include "pscompy/transport/kit/iov.h"

#define OPS_MAX 16u

static bool out_may_send(const gw_ep_t *ep)
{
    return (int32_t)(ep->out.limit - ep->out.next) > 0;
}

static void out_stamp(gw_ep_t *ep, gw_packet_t *packet, uint32_t path)
{
    gw_agent_t *agent = gw_agent_of(ep);

    packet->head.path = (uint8_t)path;
    packet->head.ack = ep->order.expected;
    packet->head.limit = ep->order.expected + agent->tokens;
    packet->clock = ++ep->out.clock;
    packet->path = (uint8_t)path;
    ep->answer.owed = ep->answer.now = false;
    ep->answer.unanswered = 0;
}

static void out_hold(gw_ep_t *ep, gw_packet_t *packet)
{
    if (packet->waiting)
        return;
    packet->waiting = true;
    ep->out.n_waiting++;
}

static bool out_send(gw_ep_t *ep, gw_packet_t *packet)
{
    gw_agent_t *agent = gw_agent_of(ep);
    gw_path_t *path = gw_path_choose(ep, packet->len);

    if (!path)
        return false;
    out_stamp(ep, packet, (uint32_t)(path - agent->paths));
    if (gw_packet_send(packet, path) != PSC_OK)
        return false;
    path->inflight += packet->len;
    if (packet->waiting) {
        packet->waiting = false;
        ep->out.n_waiting--;
    }
    return true;
}

/* Returns true if the next packet is to ask for an acknowledgement: the limit
 * of packets or of copied bytes is near, and no earlier request for an
 * acknowledgement is unanswered. One acknowledgement per packet would cost the
 * gateway as much as the packet. */
static bool out_asks(const gw_ep_t *ep)
{
    const gw_agent_t *agent = gw_agent_of(ep);
    int32_t left = (int32_t)(ep->out.limit - ep->out.next);

    return (left < (int32_t)(agent->tokens / 4) ||
            ep->out.copied > agent->window / 2) &&
           (int32_t)(ep->out.acked - ep->out.asked) >= 0;
}

static void out_number(gw_ep_t *ep, gw_packet_t *packet, uint8_t flags)
{
    gw_agent_t *agent = gw_agent_of(ep);

    packet->head = gw_head_to_peer(ep, GW_DATA);
    packet->head.seq = ep->out.next++;
    packet->head.flags = flags | (out_asks(ep) ? GW_ACK_NOW : 0);
    if (packet->head.flags & GW_ACK_NOW)
        ep->out.asked = ep->out.next;
    if (psc_list_empty(&ep->out.unacked))
        atomic_fetch_add(&agent->unsettled, 1);
    psc_list_push(&ep->out.unacked, &packet->link);
    if (ep->out.n_waiting > 0 || !out_send(ep, packet))
        out_hold(ep, packet);
    gw_path_settle(ep);
}

psc_status_t gw_out_control(gw_ep_t *ep, uint8_t flags, const void *data,
                            size_t len)
{
    gw_packet_t *packet = gw_packet_create(gw_agent_of(ep), ep, len);

    if (!packet)
        return PSC_ERR_NO_MEMORY;
    if (len)
        memcpy(packet->data, data, len);
    out_number(ep, packet, flags);
    return PSC_OK;
}

/* ---- short messages ---- */

static void out_copy(gw_packet_t *packet, const gw_message_t *message,
                     const void *header, const psc_iov_t *iov, size_t n_iov)
{
    uint8_t *at = packet->data;

    memcpy(at, message, sizeof *message);
    at += sizeof *message;
    if (message->header_len)
        memcpy(at, header, message->header_len);
    at += message->header_len;
    psc_iov_gather(at, iov, n_iov);
}

psc_status_t gw_am_bcopy(psc_ep_t *self, uint8_t id, const void *header,
                         uint8_t header_len, const psc_iov_t *iov, size_t n_iov)
{
    gw_ep_t *ep = (gw_ep_t *)self;
    gw_agent_t *agent = gw_agent_of(ep);
    gw_message_t message = {
        .len = psc_iov_total(iov, n_iov), .id = id, .header_len = header_len};
    size_t len = sizeof message + header_len + message.len;
    gw_packet_t *packet;

    if (ep->state != GW_EP_UP)
        return PSC_ERR_CLOSED;
    if (len > agent->mtu)
        return PSC_ERR_INVALID;
    if (ep->out.n_ops > 0 || !out_may_send(ep) ||
        (ep->out.copied > 0 && ep->out.copied + len > agent->window))
        return PSC_ERR_NO_RESOURCE; /* the caller tries again later: the next
                                       acknowledgement makes room */
    packet = gw_packet_create(agent, ep, len);
    if (!packet)
        return PSC_ERR_NO_MEMORY;
    out_copy(packet, &message, header, iov, n_iov);
    ep->out.copied += len;
    out_number(ep, packet, GW_FIRST);
    return PSC_OK;
}

/* ---- long messages ---- */

static uint64_t op_total(const gw_op_t *op)
{
    return sizeof op->message + op->message.header_len + op->message.len;
}

/* Makes the next packet of a long message. The last packet of the message asks
 * for an acknowledgement. */
static bool out_cut(gw_ep_t *ep, gw_op_t *op)
{
    gw_agent_t *agent = gw_agent_of(ep);
    uint64_t left = op_total(op) - op->cut;
    gw_packet_t *packet = gw_packet_create(agent, ep, 0);
    uint8_t flags = op->cut ? 0 : GW_FIRST;

    if (!packet)
        return false;
    packet->op = op;
    packet->offset = op->cut;
    packet->len = (uint32_t)(left < agent->mtu ? left : agent->mtu);
    op->cut += packet->len;
    op->packets++;
    if (op->cut == op_total(op)) {
        flags |= GW_ACK_NOW;
        op->packets--; /* the reference of the part of the op that had no packet
                          yet */
        ep->out.n_ops--;
    }
    out_number(ep, packet, flags);
    return true;
}

static void out_cut_all(gw_ep_t *ep)
{
    psc_list_for_each(op, &ep->out.ops, gw_op_t, link) {
        while (op->cut < op_total(op)) {
            if (!out_may_send(ep) || ep->out.n_waiting > 0 || !out_cut(ep, op))
                return;
        }
    }
}

psc_status_t gw_am_zcopy(psc_ep_t *self, uint8_t id, const void *header,
                         uint8_t header_len, const psc_iov_t *iov, size_t n_iov,
                         psc_comp_t *comp)
{
    gw_ep_t *ep = (gw_ep_t *)self;
    gw_op_t *op;

    if (ep->state != GW_EP_UP)
        return PSC_ERR_CLOSED;
    if (n_iov > GW_IOV_MAX)
        return PSC_ERR_INVALID;
    if (ep->out.n_ops >= OPS_MAX)
        return PSC_ERR_NO_RESOURCE;
    op = calloc(1, sizeof *op);
    if (!op)
        return PSC_ERR_NO_MEMORY;
    op->comp = comp;
    op->message = (gw_message_t){
        .len = psc_iov_total(iov, n_iov), .id = id, .header_len = header_len};
    if (header_len)
        memcpy(op->header, header, header_len);
    if (n_iov)
        memcpy(op->iov, iov, n_iov * sizeof *iov);
    op->n_iov = n_iov;
    op->packets = 1;
    ep->out.n_ops++;
    psc_list_push(&ep->out.ops, &op->link);
    out_cut_all(ep);
    return PSC_INPROGRESS;
}

/* ---- acknowledged, lost, given up ---- */

static void out_settle(gw_ep_t *ep, gw_packet_t *packet)
{
    gw_path_t *path = &gw_agent_of(ep)->paths[packet->path];

    psc_list_remove(&packet->link);
    if (packet->waiting)
        ep->out.n_waiting--;
    else
        path->inflight -= packet->len;
    if (!packet->op && packet->head.flags & GW_FIRST)
        ep->out.copied -= packet->len;
    gw_packet_drop(packet);
}

void gw_out_acknowledged(gw_ep_t *ep, uint32_t ack, uint32_t limit)
{
    bool before = !psc_list_empty(&ep->out.unacked);

    if ((int32_t)(limit - ep->out.limit) > 0 && limit - ack <= GW_TOKENS_MAX)
        ep->out.limit = limit;
    if ((int32_t)(ack - ep->out.acked) > 0 &&
        (int32_t)(ep->out.next - ack) >= 0) {
        ep->out.acked = ack;
        psc_list_for_each(packet, &ep->out.unacked, gw_packet_t, link) {
            if ((int32_t)(packet->head.seq - ack) >= 0)
                break;
            out_settle(ep, packet);
        }
    }
    if (before && psc_list_empty(&ep->out.unacked))
        atomic_fetch_sub(&gw_agent_of(ep)->unsettled, 1);
    gw_ep_due(ep);
}

void gw_out_flush(gw_ep_t *ep)
{
    if (ep->out.n_waiting > 0) {
        psc_list_for_each(packet, &ep->out.unacked, gw_packet_t, link) {
            if (packet->waiting && !out_send(ep, packet))
                break;
        }
    }
    if (ep->out.n_ops > 0)
        out_cut_all(ep);
    gw_path_settle(ep);
}

void gw_out_again(gw_ep_t *ep, uint32_t paths, bool some, uint32_t clock)
{
    gw_agent_t *agent = gw_agent_of(ep);

    psc_list_for_each(packet, &ep->out.unacked, gw_packet_t, link) {
        if (packet->waiting || !(paths >> packet->path & 1))
            continue;
        if (some && (packet->refs > 1 || (int32_t)(clock - packet->clock) < 0))
            continue;
        agent->paths[packet->path].inflight -= packet->len;
        out_hold(ep, packet);
    }
    gw_ep_due(ep);
}

void gw_out_abandon(gw_ep_t *ep)
{
    bool before = !psc_list_empty(&ep->out.unacked);

    psc_list_for_each(op, &ep->out.ops, gw_op_t, link)
        op->status = PSC_ERR_PEER_LOST;
    psc_list_for_each(packet, &ep->out.unacked, gw_packet_t, link)
        out_settle(ep, packet);
    ep->out.acked = ep->out.next;
    if (before)
        atomic_fetch_sub(&gw_agent_of(ep)->unsettled, 1);
    psc_list_for_each(op, &ep->out.ops, gw_op_t, link) {
        bool rest = op->cut < op_total(op);

        op->cut = op_total(op);
        if (rest && --op->packets == 0)
            gw_op_release(op);
    }
    ep->out.n_ops = 0;
}
