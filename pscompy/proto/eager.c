#include "eager.h"

#include <string.h>

#include "../core/finish.h"
#include "../core/pieces.h"
#include "credit.h"
#include "match.h"
#include "rates.h"
#include "protocol.h"

/* ---- sending ---- */

bool psc_eager_fits(const psc_conn_t *conn, uint64_t len)
{
    return len <= conn->params.eager_max && len <= PSC_EAGER_LIMIT;
}

static psc_counter_t eager_issue(psc_conn_t *conn, const psc_wire_eager_t *wire,
                                 const psc_iov_t *iov, size_t n_iov,
                                 uint64_t len, psc_comp_t *comp,
                                 psc_status_t *status_p)
{
    const psc_transport_ops_t *ops = conn->out.ops;
    const psc_iface_attr_t *attr = &psc_conn_main_lane(conn)->slot->attr;
    psc_ep_t *ep = conn->out.ep;
    bool zcopy;

    if (n_iov <= 1 && attr->caps & PSC_CAP_AM_SHORT &&
        len + sizeof *wire <= attr->max_short) {
        *status_p = ops->am_short(ep, PSC_WIRE_EAGER, wire, sizeof *wire,
                                  n_iov ? iov->base : NULL, len);
        return PSC_COUNTER_eager_short;
    }
    /* replay.c copies each message */
    zcopy = comp && attr->caps & PSC_CAP_AM_ZCOPY && !conn->replay;
    if (len + sizeof *wire <= conn->max_bcopy && n_iov <= attr->max_iov &&
        (len < conn->params.zcopy_min || !zcopy)) {
        *status_p =
            ops->am_bcopy(ep, PSC_WIRE_EAGER, wire, sizeof *wire, iov, n_iov);
        return PSC_COUNTER_eager_bcopy;
    }
    *status_p = PSC_ERR_UNSUPPORTED;
    if (zcopy && n_iov <= attr->max_iov)
        *status_p = ops->am_zcopy(ep, PSC_WIRE_EAGER, wire, sizeof *wire, iov,
                                  n_iov, comp);
    return PSC_COUNTER_eager_zcopy;
}

void psc_eager_left(psc_conn_t *conn, psc_counter_t how, uint64_t len)
{
    conn->flow.sent += psc_credit_cost(len);
    psc_count(conn, how, 1);
    psc_count(conn, PSC_COUNTER_sent_messages, 1);
    psc_count(conn, PSC_COUNTER_sent_bytes, len);
    if (how != PSC_COUNTER_eager_zcopy)
        psc_count(conn, PSC_COUNTER_copied_bytes, len);
}

psc_status_t psc_eager_send(psc_conn_t *conn, const psc_message_head_t *head,
                            const psc_iov_t *iov, size_t n_iov, uint64_t len,
                            psc_comp_t *comp)
{
    psc_wire_eager_t wire = {.tag = (uint32_t)head->tag,
                             .context =
                                 psc_wire_context(head->context, head->aux)};
    psc_flow_t before = conn->flow;
    psc_counter_t how;
    psc_status_t status;

    wire.credit = psc_flow_stamp(&conn->flow, conn->worker->budget.window);
    how = eager_issue(conn, &wire, iov, n_iov, len, comp, &status);
    if (status < 0) {
        psc_flow_unstamp(&conn->flow, &before);
        return status;
    }
    psc_eager_left(conn, how, len);
    psc_position_note(conn, head->context, head->tag);
    return status;
}

static void eager_sent(psc_comp_t *comp, psc_status_t status)
{
    psc_req_t *req = psc_container_of(comp, psc_bulk_t, comp)->req;

    req->bulk->inflight = 0;
    psc_req_finish(req, req->error ? req->error : status);
}

static bool eager_may(const psc_req_t *req)
{
    const psc_conn_t *conn = psc_req_conn(req);
    uint64_t len = psc_req_total(req);

    return (psc_eager_fits(conn, len) || psc_rates_tries(conn, len)) &&
           psc_flow_has(&conn->flow, psc_credit_cost(len));
}

static psc_status_t eager_start(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_conn(req);
    psc_message_head_t head = {req->context, req->head.result.tag,
                               req->bulk->aux};
    uint64_t len = psc_req_total(req);
    psc_status_t status;

    req->bulk->comp.func = eager_sent;
    status = psc_eager_send(conn, &head, psc_req_iov(req), req->n_iov, len,
                            &req->bulk->comp);
    if (status < 0)
        return status;
    if (!psc_eager_fits(conn, len))
        psc_rates_sent(conn, len);
    if (status == PSC_INPROGRESS) {
        req->bulk->inflight = 1;
        psc_req_stage_set(req, PSC_STAGE_SEND_FLIGHT);
    } else {
        psc_req_finish(req, PSC_OK);
    }
    return PSC_INPROGRESS;
}

/* ---- arriving ---- */

static void eager_result(psc_result_t *result, psc_conn_t *conn, int32_t tag,
                         uint64_t len, uint64_t room)
{
    psc_conn_sign(conn, result);
    result->tag = tag;
    result->nbytes = len;
    result->status = len > room ? PSC_ERR_TRUNCATED : PSC_OK;
    psc_count(conn, PSC_COUNTER_received_messages, 1);
    psc_count(conn, PSC_COUNTER_received_bytes, len);
}

static void eager_count_copy(psc_conn_t *conn, uint64_t len, uint64_t room)
{
    psc_count(conn, PSC_COUNTER_copied_bytes, len > room ? room : len);
}

/* Set the result of a message that was copied into the receive's buffer, and
 * count the copy. */
static inline void eager_copied_in(psc_result_t *result, psc_conn_t *conn,
                                   int32_t tag, uint64_t len, uint64_t room)
{
    eager_result(result, conn, tag, len, room);
    eager_count_copy(conn, len, room);
}

psc_status_t psc_eager_deliver(psc_unexp_t *unexp, const psc_iov_t *iov,
                               size_t n_iov, psc_result_t *result_p)
{
    uint64_t have = unexp->len - unexp->lost;
    uint64_t room = psc_iov_total(iov, n_iov);

    if (unexp->lost && room > have)
        room = have;
    eager_copied_in(result_p, unexp->conn, unexp->tag, unexp->len, room);
    if (unexp->order)
        result_p->order = unexp->order;
    psc_iov_write(iov, n_iov, 0, unexp->data, have);
    psc_unexp_free(unexp);
    return result_p->status;
}

void psc_eager_finish(psc_req_t *req, psc_unexp_t *unexp)
{
    psc_eager_deliver(unexp, psc_req_iov(req), req->n_iov, &req->head.result);
    psc_req_finish(req, req->head.result.status);
}

void psc_eager_complete(psc_unexp_t *unexp)
{
    unexp->arriving = false;
    if (unexp->req)
        psc_eager_finish(unexp->req, unexp);
    else
        psc_unexp_arrived(unexp);
}

/* Count the memory of a message that is kept. Within the bound on unexpected
 * messages its credit returns at once; beyond it the credit is withheld. */
static void eager_account(psc_unexp_t *unexp)
{
    psc_worker_t *worker = unexp->conn->worker;
    uint32_t cost = psc_credit_cost(unexp->len);

    unexp->kept = cost;
    worker->budget.kept += cost;
    if (psc_budget_left(&worker->budget)) {
        psc_credit_return(unexp->conn, cost);
        return;
    }
    unexp->owed = cost;
    psc_count(unexp->conn, PSC_COUNTER_credits_withheld, 1);
}

static void eager_copied_out(psc_conn_t *conn, uint64_t len)
{
    psc_count(conn, PSC_COUNTER_unexpected_copied, len);
    psc_count(conn, PSC_COUNTER_copied_bytes, len);
}

static void eager_hold_or_copy(psc_unexp_t *unexp, psc_lane_t *lane,
                               const psc_am_t *am, bool hold)
{
    if (hold) {
        unexp->desc = am->desc;
        unexp->lane = lane;
        unexp->data = am->payload;
        lane->held = true;
        psc_count(unexp->conn, PSC_COUNTER_unexpected_held, 1);
        return;
    }
    if (am->len)
        memcpy(unexp->payload, am->payload, am->len);
    eager_copied_out(unexp->conn, am->len);
}

/* Keep a message for which no buffer is known yet. */
static psc_status_t eager_keep(psc_unexp_t *unexp, psc_req_t *req)
{
    eager_account(unexp);
    if (!req)
        return psc_match_keep(unexp);
    psc_req_no_buffer(req, unexp);
    return PSC_OK;
}

/* Returns context, tag and header length of an active message. */
static psc_message_head_t eager_am_head(const psc_wire_eager_t *wire)
{
    return (psc_message_head_t){PSC_CONTEXT_AM, (int32_t)wire->tag,
                                (uint16_t)(wire->context & PSC_WIRE_AUX)};
}

static psc_status_t eager_unmatched(psc_conn_t *conn, const psc_am_t *am)
{
    psc_message_head_t head = eager_am_head(am->header);

    return conn->worker->unmatched->deliver(conn, &head, am->payload, am->len);
}

psc_status_t psc_eager_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_eager_t *wire = am->header;
    psc_conn_t *conn = lane->conn;
    int32_t tag = (int32_t)wire->tag;
    /* with conn->replay the lane may be freed before the message */
    bool hold = am->desc && !lane->held && !conn->replay;
    psc_status_t status;
    psc_unexp_t *unexp;
    psc_req_t *req;

    if (tag < 0 || !psc_flow_spend(&conn->flow, psc_credit_cost(am->len)))
        return PSC_ERR_PROTOCOL;
    if (psc_wire_is_am(wire->context))
        return eager_unmatched(conn, am);
    req = psc_match_arrival(conn, wire->context, tag);
    if (__builtin_expect(req == PSC_MATCH_REFUSED, 0))
        return PSC_ERR_PROTOCOL;
    if (req && psc_req_has_room(req, am->len)) {
        psc_iov_write(psc_req_iov(req), req->n_iov, 0, am->payload, am->len);
        psc_credit_return(conn, psc_credit_cost(am->len));
        psc_proto_came(conn, req->context, tag, am->len);
        eager_copied_in(&req->head.result, conn, tag, am->len,
                        psc_req_total(req));
        psc_req_finish(req, req->head.result.status);
        return PSC_OK;
    }
    unexp =
        psc_unexp_create(conn, wire->context, tag, am->len, hold ? 0 : am->len);
    if (!unexp)
        return PSC_ERR_NO_MEMORY;
    status = eager_keep(unexp, req);
    if (status != PSC_OK)
        return status == PSC_ERR_CLOSED ? PSC_OK : status;
    eager_hold_or_copy(unexp, lane, am, hold);
    return hold ? PSC_INPROGRESS : PSC_OK;
}

/* ---- messages whose header arrives before their payload ---- */

static bool eager_lands(const psc_req_t *req, uint64_t len)
{
    return req && psc_req_has_room(req, len) &&
           req->n_iov <= PSC_INCOMING_IOV &&
           !psc_layout_of(psc_req_iov(req), req->n_iov);
}

/* Receive the payload into the memory of the matching receive. */
static void eager_begin_receive(psc_lane_t *lane, psc_req_t *req, int32_t tag,
                                uint64_t len, psc_dest_t *dest)
{
    psc_incoming_t *in = &lane->incoming;
    size_t part = len;

    psc_req_stage_set(req, PSC_STAGE_CLAIMED);
    psc_req_attach(req, lane->conn);
    req->head.result.tag = tag;
    in->kind = PSC_INCOMING_RECEIVE;
    in->req = req;
    in->began = psc_rates_begin_copy(lane->conn, len);
    dest->iov = in->iov;
    dest->n_iov = psc_iov_slice(psc_req_iov(req), req->n_iov, 0, &part, in->iov,
                                PSC_INCOMING_IOV);
}

/* Receive the payload into the message's record (psc_unexp_t). If a receive has
 * matched the message already, it gets the payload from the record once the
 * payload is complete. */
static psc_status_t eager_begin_record(psc_lane_t *lane, psc_req_t *req,
                                       psc_unexp_t *unexp, psc_dest_t *dest)
{
    psc_incoming_t *in = &lane->incoming;

    unexp->arriving = true;
    if (!req || req->head.flags & PSC_FLAG_NO_BUFFER) {
        if (eager_keep(unexp, req) != PSC_OK)
            return PSC_ERR_NO_MEMORY;
    } else {
        psc_unexp_claim(req, unexp);
        unexp->kept = unexp->owed = psc_credit_cost(unexp->len);
        lane->worker->budget.kept += unexp->kept;
    }
    in->kind = PSC_INCOMING_UNEXP;
    in->unexp = unexp;
    in->iov[0] = (psc_iov_t){unexp->payload, unexp->len};
    dest->iov = in->iov;
    dest->n_iov = 1;
    eager_copied_out(lane->conn, unexp->len);
    return PSC_OK;
}

/* Find the receive for a message whose payload begins to arrive, or make a
 * record for the message. */
static psc_status_t eager_meet(psc_lane_t *lane, const psc_wire_eager_t *wire,
                               uint64_t len, psc_dest_t *dest)
{
    psc_conn_t *conn = lane->conn;
    int32_t tag = (int32_t)wire->tag;
    psc_unexp_t *unexp;
    psc_req_t *req;

    psc_proto_came(conn, wire->context, tag, len);
    req = psc_match_arrival(conn, wire->context, tag);
    if (req == PSC_MATCH_REFUSED)
        return PSC_ERR_PROTOCOL;
    if (eager_lands(req, len)) {
        eager_begin_receive(lane, req, tag, len, dest);
        return PSC_OK;
    }
    unexp = psc_unexp_create(conn, wire->context, tag, len, len);
    if (!unexp)
        return PSC_ERR_NO_MEMORY;
    return eager_begin_record(lane, req, unexp, dest);
}

psc_status_t psc_eager_begin(psc_lane_t *lane, const psc_wire_eager_t *wire,
                             uint64_t len, psc_dest_t *dest)
{
    psc_message_head_t head = eager_am_head(wire);

    if ((int32_t)wire->tag < 0 ||
        !psc_flow_spend(&lane->conn->flow, psc_credit_cost(len)))
        return PSC_ERR_PROTOCOL;
    if (psc_wire_is_am(wire->context))
        return lane->worker->unmatched->begin_payload(lane, &head, len, dest);
    return eager_meet(lane, wire, len, dest);
}

void psc_eager_landed(psc_conn_t *conn, psc_req_t *req, uint64_t len)
{
    psc_credit_return(conn, psc_credit_cost(len));
    eager_result(&req->head.result, conn, req->head.result.tag, len,
                 psc_req_total(req));
    psc_req_finish(req, req->head.result.status);
}

void psc_eager_end_receive(psc_lane_t *lane)
{
    psc_incoming_t *in = &lane->incoming;

    psc_rates_end_copy(lane->conn, in->len, in->began);
    eager_count_copy(lane->conn, in->len, psc_req_total(in->req));
    psc_eager_landed(lane->conn, in->req, in->len);
}

void psc_eager_end_record(psc_lane_t *lane)
{
    psc_eager_complete(lane->incoming.unexp);
}

const psc_proto_t psc_eager = {
    .name = "eager",
    .messages =
        (const psc_proto_message_t[]){
            {PSC_WIRE_EAGER, sizeof(psc_wire_eager_t), psc_eager_arrived}, {0}},
    .may = eager_may,
    .start = eager_start,
};
