#include "tag.h"

#include "../core/conn.h"
#include "../core/finish.h"
#include "eager.h"
#include "rndv.h"
#include "protocol.h"

/* Longest payload to put without knowing that a receive is posted. */
#define TAG_PUT_MAX (4u << 20)
/* Maximum number of messages that are announced by RTS after a put that met no
 * receive. */
#define TAG_PAUSE_MAX 63u

static uint64_t tag_mark(const psc_req_t *req)
{
    return psc_tag_bits(req->context, req->head.result.tag) | PSC_TAG_MARK;
}

static psc_status_t tag_issue(psc_conn_t *conn, uint64_t bits,
                              const psc_iov_t *iov, size_t n_iov)
{
    psc_lane_t *lane = psc_conn_main_lane(conn);
    psc_status_t status = lane->slot->ops->tag_send(lane->ep, bits, iov, n_iov);

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
        status =
            tag_issue(conn, psc_tag_bits(head->context, head->tag), iov, n_iov);
    if (status == PSC_OK)
        psc_eager_left(conn, PSC_COUNTER_eager_bcopy, len);
    return status;
}

psc_status_t psc_tag_send_mark(psc_req_t *req)
{
    psc_status_t status = tag_issue(psc_req_conn(req), tag_mark(req), NULL, 0);

    if (status != PSC_OK)
        return status;
    if (psc_req_conn(req)->tagging.pause_left > 0)
        psc_req_conn(req)->tagging.pause_left--;
    psc_req_stage_set(req, PSC_STAGE_AWAIT_RTR);
    return PSC_INPROGRESS;
}

/* ---- puts into posted receives ---- */

static bool tag_may_put(const psc_req_t *req)
{
    psc_conn_t *conn = psc_req_conn(req);
    const psc_iface_slot_t *slot;

    if (conn->tagging.pause_left > 0 || conn->params.scheme != PSC_RNDV_AUTO ||
        req->n_iov != 1 || psc_req_total(req) > TAG_PUT_MAX ||
        psc_eager_fits(conn, psc_req_total(req)))
        return false;
    slot = psc_conn_main_lane(conn)->slot;
    return slot->ops->tag_put && psc_req_total(req) <= slot->attr.max_put;
}

static void tag_put_missed(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_conn(req);

    psc_count(conn, PSC_COUNTER_tag_put_missed, 1);
    if (conn->tagging.pause < TAG_PAUSE_MAX)
        conn->tagging.pause = 2 * conn->tagging.pause + 1;
    conn->tagging.pause_left = conn->tagging.pause;
    psc_req_stage_set(req, PSC_STAGE_SEND_LATE);
    psc_conn_queue(conn, req);
}

static void tag_put_done(psc_comp_t *comp, psc_status_t status)
{
    psc_req_t *req = psc_container_of(comp, psc_bulk_t, comp)->req;
    psc_conn_t *conn = psc_req_conn(req);
    bool missed = status == PSC_ERR_UNSUPPORTED;

    if ((status != PSC_OK && !missed) || psc_conn_ended(conn)) {
        psc_rndv_comp(comp, missed ? PSC_OK : status);
        return;
    }
    req->bulk->inflight--;
    if (missed) {
        tag_put_missed(req);
        return;
    }
    psc_count(conn, PSC_COUNTER_tag_put_matched, 1);
    conn->tagging.pause = 0;
    psc_req_finish(req, PSC_OK);
}

static psc_status_t tag_put(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_conn(req);
    psc_lane_t *lane;
    uint32_t number = 0;
    psc_status_t status;

    if (!tag_may_put(req))
        return PSC_ERR_UNSUPPORTED;
    lane = psc_conn_main_lane(conn);
    req->bulk->comp.func = tag_put_done;
    status = lane->slot->ops->tag_put(
        lane->ep, tag_mark(req), psc_req_piece(req)->base, psc_req_total(req),
        &number, &req->bulk->comp);
    if (status == PSC_ERR_NO_RESOURCE)
        psc_count(conn, PSC_COUNTER_back_pressure, 1);
    if (status < 0)
        return status;
    req->bulk->number = number;
    req->bulk->inflight = 1;
    psc_count(conn, PSC_COUNTER_sent_messages, 1);
    psc_count(conn, PSC_COUNTER_sent_bytes, psc_req_total(req));
    psc_req_stage_set(req, PSC_STAGE_TAG_PUT);
    return PSC_INPROGRESS;
}

/* ---- stage SEND ---- */

bool psc_tag_may(const psc_req_t *req)
{
    return psc_tag_carries(psc_req_conn(req), req->context);
}

/* Send the message with match bits if it is short and there is credit. */
static psc_status_t tag_short(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_conn(req);
    psc_message_head_t head = {req->context, req->head.result.tag, 0};
    uint64_t len = psc_req_total(req);
    psc_status_t status;

    if (!psc_eager_fits(conn, len) ||
        !psc_flow_has(&conn->flow, psc_credit_cost(len)))
        return PSC_ERR_UNSUPPORTED;
    status = psc_tag_send(conn, &head, psc_req_iov(req), req->n_iov, len);
    if (status == PSC_OK)
        psc_req_finish(req, PSC_OK);
    return status == PSC_OK ? PSC_INPROGRESS : status;
}

/* Send the payload without waiting for the receiver, if that is possible. */
static psc_status_t tag_at_once(psc_req_t *req)
{
    psc_status_t status = tag_short(req);

    return status == PSC_ERR_UNSUPPORTED ? tag_put(req) : status;
}

psc_status_t psc_tag_start(psc_req_t *req)
{
    psc_status_t status = PSC_ERR_UNSUPPORTED;

    if (!(req->head.flags & PSC_FLAGS_ANNOUNCED))
        status = tag_at_once(req);
    if (status != PSC_ERR_UNSUPPORTED)
        return status;
    status = psc_rndv_start(req);
    if (status != PSC_INPROGRESS)
        return status;
    psc_req_stage_set(req, PSC_STAGE_SEND_MARK);
    return psc_tag_send_mark(req);
}

psc_status_t psc_tag_send_late(psc_req_t *req)
{
    psc_status_t status = psc_rndv_announce(req, PSC_RTS_LATE);

    if (status != PSC_OK)
        return status;
    psc_req_stage_set(req, PSC_STAGE_AWAIT_RTR);
    return PSC_INPROGRESS;
}
