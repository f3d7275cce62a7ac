#include "tag.h"

#include <string.h>

#include "../core/finish.h"
#include "../core/lane.h"
#include "credit.h"
#include "eager.h"
#include "match.h"
#include "rndv.h"
#include "protocol.h"
#include "message.h"

/* ---- rendezvous ---- */

/* An RTS has arrived, which waits for its mark. */
static void tag_announced(psc_lane_t *lane, psc_unexp_t *unexp)
{
    psc_list_push(&lane->announced, &unexp->link);
}

/* A mark (the tagged message that stands for an RTS) has arrived: take its RTS.
 * Returns NULL if that RTS has not arrived; the peer then violates the
 * protocol. */
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

/* Create the placeholder for a message whose tag_put met no receive. The RTS
 * that follows completes it. Returns NULL if the peer exceeds PSC_RTS_LIMIT or
 * memory is short. */
static psc_unexp_t *tag_promise(psc_lane_t *lane, uint32_t context, int32_t tag,
                                uint64_t len, uint32_t number)
{
    psc_conn_t *conn = lane->conn;
    psc_unexp_t *unexp = NULL;

    if (conn->rts_in < PSC_RTS_LIMIT)
        unexp = psc_unexp_create(conn, context, tag, len, PSC_KEYS_MAX);
    if (!unexp)
        return NULL;
    conn->rts_in++;
    unexp->rts = unexp->promised = true;
    unexp->send_id = number;
    *lane->promised_end = unexp;
    lane->promised_end = &unexp->next_promised;
    return unexp;
}

static psc_unexp_t *tag_promised(psc_lane_t *lane, uint32_t number)
{
    psc_unexp_t **at = &lane->promised, *unexp;

    while (*at && (*at)->send_id != number)
        at = &(*at)->next_promised;
    unexp = *at;
    if (!unexp)
        return NULL;
    *at = unexp->next_promised;
    if (!*at)
        lane->promised_end = at;
    return unexp;
}

/* The RTS of a placeholder (the record of a mark without RTS) will not arrive:
 * free the placeholder if a receive has claimed it. Any other placeholder is in
 * a match queue, and psc_unexp_conn_failed frees it. */
static void tag_promise_broken(psc_unexp_t *unexp)
{
    if (!unexp->req)
        return;
    psc_unexp_unclaim(unexp->req);
    psc_unexp_free(unexp);
}

/* The RTS has arrived that completes a placeholder. */
static psc_status_t tag_late(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_rts_t *wire = am->header;
    psc_unexp_t *unexp = tag_promised(lane, wire->number);

    if (!unexp)
        return PSC_ERR_PROTOCOL;
    unexp->promised = false;
    if (unexp->context != wire->context || unexp->tag != (int32_t)wire->tag ||
        unexp->len != wire->len) {
        tag_promise_broken(unexp);
        return PSC_ERR_PROTOCOL;
    }
    psc_rndv_fill(unexp, am);
    if (unexp->req)
        psc_rndv_recv_unexpected(unexp->req, unexp);
    else
        psc_unexp_arrived(unexp);
    return PSC_OK;
}

static psc_status_t tag_arrived(psc_unexp_t *unexp)
{
    psc_status_t status;
    psc_req_t *req;

    if (!unexp)
        return PSC_ERR_PROTOCOL;
    req = psc_match_arrival(unexp->conn, unexp->context, unexp->tag);
    /* not where the fabric matches: no receive is advertised there (tuple.c) */
    if (req == PSC_MATCH_REFUSED) {
        if (!unexp->promised) /* a placeholder is in lane->promised */
            psc_unexp_free(unexp);
        return PSC_ERR_PROTOCOL;
    }
    if (!req) {
        status = psc_match_keep(unexp);
        return status == PSC_ERR_CLOSED ? PSC_OK : status;
    }
    if (req->head.flags & PSC_FLAG_NO_BUFFER) {
        psc_req_no_buffer(req, unexp);
    } else if (unexp->rts) {
        psc_rndv_recv_unexpected(req, unexp);
    } else {
        psc_eager_finish(req, unexp);
    }
    return PSC_OK;
}

static psc_status_t tag_mark_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_eager_t *wire = am->header;

    return tag_arrived(tag_marked(lane, wire->context, (int32_t)wire->tag));
}

static psc_status_t tag_missed_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_eager_t *wire = am->header;
    psc_wire_missed_t missed;

    if (am->len != sizeof missed)
        return PSC_ERR_PROTOCOL;
    memcpy(&missed, am->payload, sizeof missed);
    /* with a queue, psc_match_keep cannot fail and free a placeholder that is
     * in lane->promised */
    if (!psc_match_queue(lane->conn, wire->context, true))
        return PSC_ERR_NO_MEMORY;
    return tag_arrived(tag_promise(lane, wire->context, (int32_t)wire->tag,
                                   missed.len, missed.number));
}

static psc_status_t tag_whole_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_eager_t *wire = am->header;
    psc_unexp_t *unexp = psc_unexp_create(lane->conn, wire->context,
                                          (int32_t)wire->tag, am->len, am->len);

    if (!unexp)
        return PSC_ERR_NO_MEMORY;
    memcpy(unexp->payload, am->payload, am->len);
    psc_count(lane->conn, PSC_COUNTER_unexpected_copied, am->len);
    psc_count(lane->conn, PSC_COUNTER_copied_bytes, am->len);
    return tag_arrived(unexp);
}

/* The lane ends: free its RTSs whose mark has not arrived, and its placeholders
 * (marks whose RTS has not arrived). */
static void tag_abort(psc_lane_t *lane)
{
    psc_link_t *link;

    while ((link = psc_list_pop(&lane->announced)))
        psc_unexp_free(psc_container_of(link, psc_unexp_t, link));
    while (lane->promised) {
        psc_unexp_t *unexp = lane->promised;

        lane->promised = unexp->next_promised;
        tag_promise_broken(unexp);
    }
    lane->promised_end = &lane->promised;
}

/* ---- receiving ---- */

/* Continue a receive that has matched a mark (tag.h): with the RTS that arrived
 * before, or the placeholder of the RTS that will follow. */
static psc_status_t tag_goes_on(psc_req_t *req, psc_unexp_t *unexp)
{
    if (!unexp)
        return PSC_ERR_PROTOCOL;
    psc_rndv_recv_unexpected(req, unexp);
    return PSC_OK;
}

static psc_status_t tag_matched(psc_req_t *req, psc_conn_t *conn, uint64_t bits,
                                uint64_t len, bool missed)
{
    psc_lane_t *lane = psc_conn_main_lane(conn);
    uint32_t context = psc_tag_context(bits);
    int32_t tag = (int32_t)(bits & PSC_TAG_MASK);

    req->head.result.tag = tag;
    req->head.result.order = ++psc_req_worker(req)->matching.clock;
    psc_count(conn, PSC_COUNTER_tag_matched, 1);
    if (missed)
        return tag_goes_on(req, tag_promise(lane, context, tag, len,
                                            psc_req_tagged(req)->number));
    if (bits & PSC_TAG_MARK && len == 0)
        return tag_goes_on(req, tag_marked(lane, context, tag));
    if (bits & PSC_TAG_MARK) {
        psc_rndv_recv_landed(req, conn, tag, len);
        return PSC_OK;
    }
    if (!psc_flow_spend(&conn->flow, psc_credit_cost(len)))
        return PSC_ERR_PROTOCOL;
    psc_eager_landed(conn, req, len);
    return PSC_OK;
}

/* The fabric has matched or ended a receive (psc_tag_recv_t.done). */
static void tag_done(psc_tag_recv_t *recv, psc_status_t status, uint64_t bits,
                     size_t len)
{
    psc_req_t *req = psc_container_of(recv, psc_bulk_t, record.tagged)->req;
    bool missed = status == PSC_ERR_UNSUPPORTED;
    psc_conn_t *conn;

    psc_match_met(req);
    conn = psc_req_conn(req);
    req->bulk->inflight = 0;
    if (req->error || (status != PSC_OK && !missed)) {
        psc_req_finish(req, req->error ? req->error : status);
        return;
    }
    status = tag_matched(req, conn, bits, len, missed);
    if (status == PSC_OK) {
        psc_requeue_met(req);
        return;
    }
    psc_req_finish(req, status);
    psc_lane_break(psc_conn_main_lane(conn), status);
}

static bool tag_takes(const psc_req_t *req)
{
    psc_conn_t *conn = psc_req_source(req);

    /* the fabric does not know messages that arrived before the lane was
     * installed and are still to be matched */
    return conn->state == PSC_CONN_UP && psc_tag_carries(conn, req->context) &&
           psc_list_empty(&psc_conn_main_lane(conn)->early) &&
           req->n_iov <= 1 && !(req->head.flags & PSC_FLAG_NO_BUFFER);
}

static bool tag_offer(psc_req_t *req)
{
    psc_lane_t *lane = psc_conn_main_lane(psc_req_source(req));
    bool any = req->head.result.tag == PSC_ANY_TAG;
    psc_tag_recv_t *record;

    if (!psc_req_extend(req))
        return false;
    record = &req->bulk->record.tagged;
    *record = (psc_tag_recv_t){
        .source = lane->ep,
        .match = psc_tag_bits(req->context, any ? 0 : req->head.result.tag),
        .ignore = PSC_TAG_MARK | (any ? PSC_TAG_MASK : 0),
        .done = tag_done,
    };
    if (req->n_iov)
        record->buffer = *psc_req_piece(req);
    if (lane->slot->ops->tag_post(lane->ep, record) != PSC_OK)
        return false;
    psc_count(psc_req_source(req), PSC_COUNTER_tag_posted, 1);
    return true;
}

static psc_status_t tag_recall(psc_req_t *req)
{
    psc_lane_t *lane = psc_conn_main_lane(psc_req_source(req));

    return lane->slot->ops->tag_cancel(lane->ep, psc_req_tagged(req)) == PSC_OK
               ? PSC_OK
               : PSC_ERR_INVALID;
}

/* A message is being written into the receive's buffer. The connection stays
 * until the fabric has completed the receive. */
static void tag_lost(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_source(req);

    psc_req_set_unexp(req, NULL);
    req->bulk->inflight = 1;
    psc_req_stage_set(req, PSC_STAGE_LANDING);
    psc_req_attach(req, conn);
}

static void tag_begin(psc_conn_t *conn)
{
    char reason[PSC_REASON_MAX];

    conn->matches = psc_lane_tagged(psc_conn_main_lane(conn), reason);
    if (!conn->matches)
        return;
    conn->hands_out = &psc_tag;
    conn->hands_from = 0;
}

const psc_proto_t psc_tag = {
    .name = "tag",
    .messages =
        (const psc_proto_message_t[]){
            {PSC_WIRE_MARK, sizeof(psc_wire_eager_t), tag_mark_arrived},
            {PSC_WIRE_MISSED, sizeof(psc_wire_eager_t), tag_missed_arrived},
            {PSC_WIRE_WHOLE, sizeof(psc_wire_eager_t), tag_whole_arrived},
            {0}},
    .stages =
        (const psc_proto_stage_t[]){{PSC_STAGE_SEND_MARK, psc_tag_send_mark},
                                    {PSC_STAGE_SEND_LATE, psc_tag_send_late},
                                    {0}},
    .may = psc_tag_may,
    .announces = true,
    .start = psc_tag_start,
    .send_now = psc_tag_send,
    .takes = tag_takes,
    .offer = tag_offer,
    .recall = tag_recall,
    .lost = tag_lost,
    .kept = PSC_COUNTER_tag_hidden,
    .handed = "posted to the fabric",
    .announced = tag_announced,
    .late = tag_late,
    .begin = tag_begin,
    .lane_ended = tag_abort,
};
