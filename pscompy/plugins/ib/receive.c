/* Completions of sent requests, and of messages that arrive. */
#include <string.h>

#include "ib.h"

/* ---- queues by number ---- */

static ib_queue_t **ib_queue_bucket(ib_iface_t *iface, uint32_t number)
{
    return &iface->queues[number % IB_BUCKETS];
}

void ib_queue_enlist(ib_iface_t *iface, ib_queue_t *queue)
{
    ib_queue_t **bucket = ib_queue_bucket(iface, queue->qp->qp_num);

    queue->next = *bucket;
    *bucket = queue;
}

void ib_queue_strike(ib_iface_t *iface, ib_queue_t *queue)
{
    ib_queue_t **at = ib_queue_bucket(iface, queue->qp->qp_num);

    while (*at && *at != queue)
        at = &(*at)->next;
    if (*at)
        *at = queue->next;
}

/* Returns NULL if the queue's endpoint has been freed. */
static ib_queue_t *ib_queue_find(ib_iface_t *iface, uint32_t number)
{
    ib_queue_t *queue = *ib_queue_bucket(iface, number);

    while (queue && queue->qp->qp_num != number)
        queue = queue->next;
    return queue;
}

/* ---- completions of sends ---- */

static psc_status_t ib_status_of(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return PSC_OK;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
        return PSC_ERR_PEER_LOST;
    /* the key, or the memory that it refers to, is not valid */
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
        return PSC_ERR_INVALID;
    default:
        return PSC_ERR_TRANSPORT;
    }
}

static void ib_job_end(ib_iface_t *iface, const ib_job_t *job,
                       psc_status_t status)
{
    psc_comp_t *comp = job->comp;

    if (job->buffer != IB_NO_BUFFER)
        iface->sends.free[iface->sends.n_free++] = job->buffer;
    if (job->hold)
        ib_hold_told(job->hold, status == PSC_OK);
    if (!comp)
        return;
    iface->n_starving--;
    comp->func(comp, status);
}

/* Requests complete in order, and a completion covers all earlier requests. */
static void ib_queue_ended(ib_queue_t *queue, uint32_t serial,
                           psc_status_t status)
{
    ib_ep_t *ep = queue->owner;
    ib_iface_t *iface = ib_ep_iface(ep);

    while (!ep->dead && (int32_t)(serial - queue->done) >= 0) {
        ib_job_t job = queue->posts[queue->done % queue->size].job;
        bool last = queue->done++ == serial;

        ib_job_end(iface, &job, last ? status : PSC_OK);
    }
}

static void ib_messages_broke(ib_ep_t *ep, const struct ibv_wc *wc)
{
    psc_status_t status = ib_status_of(wc->status);

    if (ep->messages.broken)
        return;
    ib_queue_abort(&ep->messages);
    if (status == PSC_ERR_PEER_LOST)
        psc_party_fail(&ep->party, status, "the peer does not answer (%s)",
                       ibv_wc_status_str(wc->status));
    else
        psc_party_fail(&ep->party, status, "%s (vendor error 0x%x)",
                       ibv_wc_status_str(wc->status), wc->vendor_err);
}

/* The request that broke the queue completes with an error; the flushed ones
 * are posted again. */
static void ib_bulk_broke(ib_ep_t *ep, const struct ibv_wc *wc)
{
    ib_queue_t *queue = &ep->bulk;
    const ib_post_t *post = &queue->posts[wc->wr_id % queue->size];
    psc_status_t status = ib_status_of(wc->status);

    if (status == PSC_ERR_PEER_LOST)
        ib_messages_broke(ep, wc);
    ib_mend_start(ep);
    if (wc->status == IBV_WC_WR_FLUSH_ERR && post->job.comp) {
        ib_mend_park(ep, post);
        queue->done++;
        return;
    }
    ib_queue_ended(queue, (uint32_t)wc->wr_id, status);
}

static void ib_complete_failed(ib_queue_t *queue, const struct ibv_wc *wc)
{
    ib_ep_t *ep = queue->owner;

    if (queue == &ep->bulk) {
        ib_bulk_broke(ep, wc);
    } else if (ep->party.state == PSC_PARTY_MEETING &&
               ep->party.proof.state == PSC_PROOF_AWAIT_CHALLENGE &&
               wc->status == IBV_WC_RETRY_EXC_ERR) {
        ib_meet_again(ep);
    } else {
        ib_messages_broke(ep, wc);
        ib_queue_ended(queue, (uint32_t)wc->wr_id, ib_status_of(wc->status));
    }
}

static void ib_complete_one(ib_iface_t *iface, const struct ibv_wc *wc)
{
    ib_queue_t *queue = ib_queue_find(iface, wc->qp_num);
    ib_ep_t *ep = queue ? queue->owner : NULL;

    if (!ep)
        return;
    iface->handled++;
    ib_ep_feed(ep);
    if (wc->status != IBV_WC_SUCCESS) {
        ib_complete_failed(queue, wc);
        return;
    }
    ep->party.heard = true;
    ep->asked = false;
    ib_queue_ended(queue, (uint32_t)wc->wr_id, PSC_OK);
}

/* A completion that ib_arm() took from a queue is processed before the
 * queue. */
static bool ib_early(ib_iface_t *iface, ib_early_t kind)
{
    bool there = iface->early_kind == kind;

    if (there)
        iface->early_kind = IB_EARLY_NONE;
    return there;
}

void ib_complete_poll(ib_iface_t *iface)
{
    struct ibv_wc wcs[IB_BATCH];
    int n;

    if (ib_early(iface, IB_EARLY_SENT))
        ib_complete_one(iface, &iface->early);
    n = ibv_poll_cq(iface->device.send_cq, IB_BATCH, wcs);
    for (int i = 0; i < n; i++)
        ib_complete_one(iface, &wcs[i]);
}

/* ---- credits ---- */

/* Sends the reports of credit that no message has carried. */
void ib_credit_pay(ib_iface_t *iface)
{
    psc_list_for_each(ep, &iface->owing, ib_ep_t, owing) {
        bool due =
            ep->party.state == PSC_PARTY_UP && psc_credit_due(&ep->credit);

        if (due &&
            ib_control_send(ep, IB_KIND_CREDIT, NULL, 0) == PSC_ERR_NO_RESOURCE)
            continue;
        psc_list_remove(&ep->owing);
    }
}

/* A report that was overtaken by a later one is valid too, however old it is:
 * while a message waits in the ring, any number of reports may arrive through
 * the queue. Returns false if the report is impossible. */
static bool ib_credit_take(ib_ep_t *ep, uint32_t taken)
{
    psc_credit_verdict_t verdict = psc_credit_confirm(&ep->credit, taken);

    if (verdict == PSC_CREDIT_MORE)
        ib_ep_feed(ep);
    return verdict != PSC_CREDIT_IMPOSSIBLE;
}

/* ---- messages ---- */

/* A message counts as received after its upcall has returned, because the peer
 * may then overwrite its slot. */
static void ib_am_taken(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);

    ep->credit.received++;
    if (psc_credit_due(&ep->credit) && !psc_link_listed(&ep->owing))
        psc_list_push(&iface->owing, &ep->owing);
    if (ep->credit.received >= iface->settings.busy && !ep->ring.base &&
        ep->party.role != PSC_ROLE_SELF)
        ib_ring_offer(ep);
}

/* The header is copied, because the peer may still write to the ring. */
static void ib_am_arrived(ib_ep_t *ep, const ib_head_t *head,
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
    ib_ep_iface(ep)->super.up->am_recv(&ep->party.super, &am);
    if (ep->party.state == PSC_PARTY_UP)
        ib_am_taken(ep);
}

static void ib_control_arrived(ib_ep_t *ep, const ib_head_t *head,
                               const uint8_t *body, size_t len)
{
    bool up = ep->party.state == PSC_PARTY_UP;

    if (head->kind == IB_KIND_GOODBYE) {
        ep->party.goodbye = true;
        psc_party_fail(&ep->party, PSC_ERR_CLOSED, "the peer has closed");
    } else if (head->kind == IB_KIND_MEND && up) {
        ib_mend_arrived(ep, body, len);
    } else if (head->kind == IB_KIND_OFFER && up) {
        ib_ring_offered(ep, body, len);
    } else if (head->kind == IB_KIND_SWITCH && up) {
        ib_ring_begun(ep);
    } else if (head->kind != IB_KIND_CREDIT) {
        ib_meet_arrived(ep, head->kind, body, len);
    }
}

/* Active messages arrive through the ring or through the queue, all others
 * through the queue only. A message that was written into the ring before the
 * goodbye may be read after it. */
void ib_arrived(ib_ep_t *ep, const uint8_t *bytes, size_t len, bool by_ring)
{
    ib_head_t head;

    if (len < IB_HEAD_SIZE) {
        psc_party_fail(&ep->party, PSC_ERR_PROTOCOL,
                       "a message without a head");
        return;
    }
    memcpy(&head, bytes, sizeof(head));
    bytes += IB_HEAD_SIZE;
    len -= IB_HEAD_SIZE;
    if (head.header_len > PSC_AM_HEADER_MAX || head.header_len > len ||
        (head.kind == IB_KIND_AM) < by_ring ||
        !ib_credit_take(ep, head.taken)) {
        psc_party_fail(&ep->party, PSC_ERR_PROTOCOL,
                       "a message with a wrong head");
        return;
    }
    if (head.kind != IB_KIND_AM)
        ib_control_arrived(ep, &head, bytes, len);
    else if (ep->party.state == PSC_PARTY_UP &&
             (!psc_party_fails(&ep->party) || ep->party.goodbye))
        ib_am_arrived(ep, &head, bytes, len);
}

/* The completion of a write into a ring carries no message; it only consumed a
 * receive buffer. */
static void ib_receive_one(ib_iface_t *iface, const struct ibv_wc *wc)
{
    ib_queue_t *queue = ib_queue_find(iface, wc->qp_num);

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

/* Takes up to as many completions as there are buffers. Messages in rings are
 * read before their completions, and each of these holds a receive buffer until
 * it is taken. */
void ib_receive_poll(ib_iface_t *iface)
{
    struct ibv_wc wcs[IB_BATCH];
    unsigned rounds = iface->device.recvs / IB_BATCH + 1;

    if (ib_early(iface, IB_EARLY_RECEIVED))
        ib_receive_all(iface, &iface->early, 1);
    for (iface->drained = false; !iface->drained && rounds > 0; rounds--) {
        int n = ibv_poll_cq(iface->device.recv_cq, IB_BATCH, wcs);

        ib_receive_all(iface, wcs, n);
        iface->drained = n < (int)IB_BATCH;
    }
}
