#include "tag.h"

#include "rndv.h"

static uint64_t tag_bits(uint32_t context, int32_t tag)
{
    return (uint64_t)context << PSC_TAG_CONTEXT_SHIFT | (uint32_t)tag;
}

static uint32_t tag_context(uint64_t bits)
{
    return (uint32_t)(bits >> PSC_TAG_CONTEXT_SHIFT);
}

/* ---- sending ---- */

static psc_status_t tag_issue(psc_conn_t *conn, uint64_t bits,
                              const psc_iov_t *iov, size_t n_iov)
{
    psc_lane_t *lane = psc_conn_main_lane(conn);
    psc_status_t status =
        lane->slot->ops->tag_send(lane->ep, bits, iov, n_iov);

    if (status == PSC_ERR_NO_RESOURCE)
        psc_count(conn, PSC_COUNTER_back_pressure, 1);
    return status;
}

psc_status_t psc_tag_send(psc_conn_t *conn, const psc_message_head_t *head,
                          const psc_iov_t *iov, size_t n_iov, uint64_t len)
{
    const psc_iface_attr_t *attr = &psc_conn_main_lane(conn)->slot->attr;

    psc_status_t status = PSC_ERR_UNSUPPORTED;

    if (len <= attr->max_bcopy && n_iov <= attr->max_iov)
        status = tag_issue(conn, tag_bits(head->context, head->tag), iov,
                           n_iov);
    if (status == PSC_OK)
        psc_eager_left(conn, PSC_COUNTER_eager_bcopy, len);
    return status;
}

psc_status_t psc_tag_send_mark(psc_req_t *req)
{
    psc_status_t status = tag_issue(
        req->conn, tag_bits(req->context, req->tag) | PSC_TAG_MARK, NULL, 0);

    if (status != PSC_OK)
        return status;
    psc_req_stage_set(req, PSC_STAGE_AWAIT_RTR);
    return PSC_INPROGRESS;
}

/* ---- rendezvous ---- */

void psc_tag_announced(psc_lane_t *lane, psc_unexp_t *unexp)
{
    psc_list_push(&lane->announced, &unexp->link);
}

/* The RTS whose mark this is; NULL: the peer sent marks at random. */
static psc_unexp_t *tag_marked(psc_lane_t *lane, uint32_t context, int32_t tag)
{
    psc_link_t *link = psc_list_pop(&lane->announced);
    psc_unexp_t *unexp;

    if (!link)
        return NULL;
    unexp = psc_container_of(link, psc_unexp_t, link);
    if (unexp->context == context && unexp->tag == tag)
        return unexp;
    psc_unexp_free(unexp);
    return NULL;
}

psc_status_t psc_tag_mark_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_eager_t *wire = am->header;
    psc_unexp_t *unexp =
        tag_marked(lane, wire->context, (int32_t)wire->tag);
    psc_req_t *req;

    if (!unexp)
        return PSC_ERR_PROTOCOL;
    req = psc_match_arrival(lane->conn, unexp->context, unexp->tag);
    if (!req)
        return psc_match_keep(unexp);
    if (req->head.flags & PSC_FLAG_NO_BUFFER)
        psc_req_no_buffer(req, unexp);
    else
        psc_rndv_recv_unexpected(req, unexp);
    return PSC_OK;
}

void psc_tag_abort(psc_lane_t *lane)
{
    psc_link_t *link;

    while ((link = psc_list_pop(&lane->announced)))
        psc_unexp_free(psc_container_of(link, psc_unexp_t, link));
}

/* ---- receiving ---- */

static psc_status_t tag_matched(psc_req_t *req, uint64_t bits, uint64_t len)
{
    psc_conn_t *conn = req->source;
    psc_unexp_t *unexp;

    req->head.result.tag = (int32_t)(bits & PSC_TAG_MASK);
    psc_count(conn, PSC_COUNTER_tag_matched, 1);
    if (!(bits & PSC_TAG_MARK)) {
        if (!psc_credit_spend(conn, psc_credit_cost(len)))
            return PSC_ERR_PROTOCOL;
        psc_eager_landed(conn, req, len);
        return PSC_OK;
    }
    unexp = tag_marked(psc_conn_main_lane(conn), tag_context(bits),
                       req->head.result.tag);
    if (!unexp)
        return PSC_ERR_PROTOCOL;
    psc_rndv_recv_unexpected(req, unexp);
    return PSC_OK;
}

static void tag_done(psc_tag_recv_t *recv, psc_status_t status, uint64_t bits,
                     size_t len)
{
    psc_req_t *req = psc_container_of(recv, psc_req_t, tagged);
    psc_conn_t *conn = req->source;

    psc_list_remove(&req->link);
    req->bulk.inflight = 0;
    if (req->error || status != PSC_OK) {
        psc_req_finish(req, req->error ? req->error : status);
        return;
    }
    status = tag_matched(req, bits, len);
    if (status == PSC_OK)
        return;
    psc_req_finish(req, status);
    psc_lane_break(psc_conn_main_lane(conn), status);
}

bool psc_tag_recv(psc_req_t *req)
{
    psc_conn_t *conn = req->source;
    psc_match_queue_t *queue;
    psc_lane_t *lane;

    if (conn->state != PSC_CONN_UP || req->n_iov > 1 ||
        req->head.flags & PSC_FLAG_NO_BUFFER ||
        !(queue = psc_match_alone(req)))
        return false;
    lane = psc_conn_main_lane(conn);
    req->tagged = (psc_tag_recv_t){
        .source = lane->ep,
        .match = tag_bits(req->context, req->tag == PSC_ANY_TAG ? 0 : req->tag),
        .ignore = PSC_TAG_MARK | (req->tag == PSC_ANY_TAG ? PSC_TAG_MASK : 0),
        .done = tag_done,
    };
    if (req->n_iov)
        req->tagged.buffer = *req->iov;
    if (lane->slot->ops->tag_post(lane->ep, &req->tagged) != PSC_OK)
        return false;
    psc_count(conn, PSC_COUNTER_tag_posted, 1);
    req->order = ++req->worker->match_clock;
    psc_req_stage_set(req, PSC_STAGE_TAGGED);
    psc_list_push(&queue->tagged, &req->link);
    return true;
}

bool psc_tag_recall(psc_req_t *req)
{
    psc_lane_t *lane = psc_conn_main_lane(req->source);

    if (req->bulk.inflight > 0 ||
        lane->slot->ops->tag_cancel(lane->ep, &req->tagged) != PSC_OK)
        return false;
    psc_list_remove(&req->link);
    return true;
}

psc_status_t psc_tag_recv_cancel(psc_req_t *req)
{
    if (!psc_tag_recall(req))
        return PSC_ERR_INVALID;
    psc_req_finish(req, PSC_ERR_CANCELLED);
    return PSC_OK;
}

/* A message is on its way into the buffer: the connection stays until the
 * fabric says that it is over. */
void psc_tag_recv_end(psc_req_t *req, psc_status_t status)
{
    if (psc_tag_recall(req)) {
        psc_req_finish(req, status);
        return;
    }
    psc_list_remove(&req->link);
    psc_req_attach(req, req->source);
    req->bulk.inflight = 1;
    req->error = status;
}
