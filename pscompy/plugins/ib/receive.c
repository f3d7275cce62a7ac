/* Messages that arrive in receive buffers and in rings (ring.c), and the
 * reports to the peer of how many of its messages were received, which are its
 * credit. */
#include <string.h>

#include "ib.h"

/* Processes a report of how many messages the peer has received. Each message
 * contains a report, whether it arrives in the ring or in a receive buffer.
 * While a message waits in the ring, later messages may arrive in receive
 * buffers, so a report older than the last one is no error. Returns false if
 * the peer reports messages that were never sent. */
static bool ib_credit_take(ib_ep_t *ep, uint32_t taken)
{
    psc_credit_verdict_t verdict = psc_credit_confirm(&ep->kit.credit, taken);

    if (verdict == PSC_CREDIT_MORE)
        ib_ep_feed(ep);
    return verdict != PSC_CREDIT_IMPOSSIBLE;
}

/* ---- messages ---- */

/* Counts a message of the peer as received. Called after the message's upcall
 * has returned, because the peer may then overwrite the message's slot in the
 * ring. Offers a ring to a peer that sends much. */
static void ib_am_taken(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);

    psc_kit_ep_count(&ep->kit);
    if (ep->kit.credit.received >= iface->settings.busy && !ep->ring.base &&
        ep->kit.role != PSC_ROLE_SELF)
        ib_ring_announce(ep);
}

/* Delivers an active message. Its header is copied first, because the peer may
 * still write to the ring. */
static void ib_am_arrived(ib_ep_t *ep, const psc_head_t *head,
                          const uint8_t *body, size_t len)
{
    uint8_t header[PSC_AM_HEADER_MAX] __attribute__((aligned(8)));
    psc_am_t am = {
        .id = head->id,
        .header_len = head->header_len,
        .header = header,
        .payload = body + head->header_len,
        .len = len - head->header_len,
    };

    memcpy(header, body, head->header_len);
    ib_ep_iface(ep)->super.up->am_recv(&ep->kit.super, &am);
    if (ep->kit.state == PSC_KIT_EP_UP)
        ib_am_taken(ep);
}

static void ib_control_arrived(ib_ep_t *ep, const psc_head_t *head,
                               const uint8_t *body, size_t len)
{
    bool up = ep->kit.state == PSC_KIT_EP_UP;

    if (head->kind == IB_KIND_RECOVER && up)
        ib_recover_arrived(ep, body, len);
    else if (head->kind == IB_KIND_RING && up)
        ib_ring_announced(ep, body, len);
    else if (head->kind == IB_KIND_SWITCH && up)
        ib_ring_begun(ep);
    else
        psc_kit_ep_control(&ep->kit, head->kind, body, len);
}

/* Handles a message. Active messages arrive through the ring or through the
 * receive queue, all other messages through the receive queue only. A message
 * that was written into the ring before the goodbye may be read after the
 * goodbye. */
static void ib_arrived(ib_ep_t *ep, const uint8_t *bytes, size_t len,
                       bool by_ring)
{
    psc_head_t head;

    if (!psc_head_read(&ep->kit, bytes, len, &head))
        return;
    bytes += sizeof(head);
    len -= sizeof(head);
    if ((head.kind == PSC_KIT_EP_AM) < by_ring ||
        !ib_credit_take(ep, head.taken)) {
        psc_kit_ep_fail(&ep->kit, PSC_ERR_PROTOCOL, "a malformed header");
        return;
    }
    if (head.kind != PSC_KIT_EP_AM)
        ib_control_arrived(ep, &head, bytes, len);
    else if (ep->kit.state == PSC_KIT_EP_UP &&
             (!psc_kit_ep_fails(&ep->kit) || ep->kit.goodbye))
        ib_am_arrived(ep, &head, bytes, len);
}

/* ---- receive buffers ---- */

/* Handles one completion of the receive queue. The completion of a write into a
 * ring carries no message: the write only consumed a receive buffer. */
static void ib_receive_one(ib_iface_t *iface, const struct ibv_wc *wc)
{
    ib_queue_t *queue = ib_queue_find(&iface->queues, wc->qp_num);

    iface->handled++;
    if (wc->status != IBV_WC_SUCCESS || !queue ||
        wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
        return;
    ib_arrived(queue->owner, ib_pool_at(&iface->recvs, (uint32_t)wc->wr_id),
               wc->byte_len, false);
}

static void ib_receive_all(ib_iface_t *iface, const struct ibv_wc *wcs, int n)
{
    uint32_t numbers[IB_BATCH];
    unsigned taken;

    for (int i = 0; i < n; i++) {
        ib_receive_one(iface, &wcs[i]);
        numbers[i] = (uint32_t)wcs[i].wr_id;
    }
    taken = ib_device_post_recvs(&iface->device, &iface->recvs, numbers,
                                 (unsigned)n);
    if (taken < (unsigned)n)
        psc_iface_log(&iface->super, 1, "%u receive buffers are lost",
                      (unsigned)n - taken);
}

/* Takes the completions of the receive queue, about as many as there are
 * receive buffers at most. Among them are the completions of messages in rings,
 * because the receive buffer that such a message consumed can be posted again
 * only after its completion was taken. */
void ib_receive_poll(ib_iface_t *iface)
{
    struct ibv_wc wcs[IB_BATCH];
    unsigned rounds = iface->device.recvs / IB_BATCH + 1;

    for (iface->drained = false; !iface->drained && rounds > 0; rounds--) {
        int n = ib_completions_take(iface, iface->device.recv_cq, wcs);

        ib_receive_all(iface, wcs, n);
        iface->drained = n < (int)IB_BATCH;
    }
}

/* ---- messages in rings ---- */

static void ib_ring_take(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);

    for (unsigned i = 0; i < IB_BATCH; i++) {
        size_t len;
        const uint8_t *bytes = ib_ring_next(ep, &len);

        if (!bytes)
            return;
        ep->kit.active_since_tick = true;
        iface->handled++;
        ib_arrived(ep, bytes, len, true);
        if (!psc_link_listed(&ep->ringing))
            return;
    }
    iface->drained = false;
}

/* Reads the rings of all endpoints whose peer writes into one. The upcall of a
 * message may end any endpoint, so the list of endpoints is rotated instead of
 * iterated. */
void ib_ring_poll(ib_iface_t *iface)
{
    for (uint32_t i = iface->n_rings; i > 0; i--) {
        psc_link_t *link = psc_list_pop(&iface->ringing);
        ib_ep_t *ep;

        if (!link)
            return;
        psc_list_push(&iface->ringing, link);
        ep = psc_container_of(link, ib_ep_t, ringing);
        ib_ring_take(ep);
    }
}
