#include "tag.h"

#include <string.h>

#include "../core/finish.h"
#include "../core/lane_upcalls.h"
#include "credit.h"
#include "eager.h"
#include "match.h"
#include "rndv.h"
#include "rndv_keys.h"
#include "tag_post.h"

static uint32_t tag_context(uint64_t bits)
{
    return (uint32_t)(bits >> PSC_TAG_CONTEXT_SHIFT);
}

/* ---- rendezvous ---- */

void psc_tag_announced(psc_lane_t *lane, psc_unexp_t *unexp)
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
    unexp->send_id = (uint16_t)number;
    *lane->promised_end = unexp;
    lane->promised_end = &unexp->next_promised;
    return unexp;
}

static psc_unexp_t *tag_promised(psc_lane_t *lane, uint16_t number)
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

psc_status_t psc_tag_late_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_rts_t *wire = am->header;
    psc_unexp_t *unexp = tag_promised(lane, wire->aux);

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
    return PSC_OK;
}

static psc_status_t tag_arrived(psc_unexp_t *unexp)
{
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
    if (!req)
        return psc_match_keep(unexp);
    if (req->head.flags & PSC_FLAG_NO_BUFFER) {
        psc_req_no_buffer(req, unexp);
    } else if (unexp->rts) {
        psc_rndv_recv_unexpected(req, unexp);
    } else {
        psc_eager_finish(req, unexp);
    }
    return PSC_OK;
}

psc_status_t psc_tag_mark_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_eager_t *wire = am->header;

    return tag_arrived(tag_marked(lane, wire->context, (int32_t)wire->tag));
}

psc_status_t psc_tag_missed_arrived(psc_lane_t *lane, const psc_am_t *am)
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

psc_status_t psc_tag_whole_arrived(psc_lane_t *lane, const psc_am_t *am)
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

void psc_tag_abort(psc_lane_t *lane)
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
    uint32_t context = tag_context(bits);
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

void psc_tag_done(psc_tag_recv_t *recv, psc_status_t status, uint64_t bits,
                  size_t len)
{
    psc_req_t *req = psc_container_of(recv, psc_bulk_t, record.tagged)->req;
    /* psc_tag_recv_end() sets `error` */
    psc_conn_t *conn = req->error ? psc_req_conn(req) : psc_req_source(req);
    bool missed = status == PSC_ERR_UNSUPPORTED;

    psc_list_remove(&req->link);
    psc_req_set_unexp(req, NULL);
    req->bulk->inflight = 0;
    if (req->error || (status != PSC_OK && !missed)) {
        psc_req_finish(req, req->error ? req->error : status);
        return;
    }
    status = tag_matched(req, conn, bits, len, missed);
    if (status == PSC_OK)
        return;
    psc_req_finish(req, status);
    psc_lane_break(psc_conn_main_lane(conn), status);
}

bool psc_tag_recv(psc_req_t *req)
{
    psc_match_queue_t *queue;

    if (!psc_tag_may(req) || !(queue = psc_match_alone(req)) ||
        !psc_tag_post(req))
        return false;
    req->head.result.order = ++psc_req_worker(req)->matching.clock;
    psc_req_stage_set(req, PSC_STAGE_TAGGED);
    psc_list_push(&queue->tagged, &req->link);
    return true;
}

psc_status_t psc_tag_recv_cancel(psc_req_t *req)
{
    if (!psc_tag_recall(req))
        return PSC_ERR_INVALID;
    psc_req_finish(req, PSC_ERR_CANCELLED);
    return PSC_OK;
}

/* If the fabric cannot give the receive back, a message is being written into
 * its buffer. The connection then stays until the fabric has completed the
 * receive. */
void psc_tag_recv_end(psc_req_t *req, psc_status_t status)
{
    if (psc_tag_recall(req)) {
        psc_req_finish(req, status);
        return;
    }
    psc_list_remove(&req->link);
    psc_req_attach(req, psc_req_source(req));
    psc_req_set_unexp(req, NULL);
    psc_req_stage_set(req, PSC_STAGE_ENDING);
    req->bulk->inflight = 1;
    req->error = status;
}
