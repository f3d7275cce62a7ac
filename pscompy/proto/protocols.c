/* The protocols' part when a connection or a worker begins or ends, and the
 * control messages that the protocols send. */
#include "proto.h"

#include "../core/finish.h"
#include "../core/lane.h"
#include "../core/memory/memory.h"
#include "../core/upward.h"
#include "credit.h"
#include "message.h"
#include "protocol.h"
#include "match.h"
#include "rail.h"
#include "rates.h"
#include "rma.h"
#include "replay.h"
#include "rndv.h"

/* Call a function of all protocols that have it. */
#define FOR_ALL(function, ...)                                                 \
    do {                                                                       \
        for (const psc_proto_t *const *at = psc_proto_list; *at; at++) {       \
            if ((*at)->function)                                               \
                (*at)->function(__VA_ARGS__);                                  \
        }                                                                      \
    } while (0)

/* ---- a connection begins ---- */

static void conn_params(psc_conn_t *conn, const psc_proto_params_t *params)
{
    conn->params = *params;
    if (conn->params.eager_max > PSC_EAGER_LIMIT)
        conn->params.eager_max = PSC_EAGER_LIMIT;
    if (conn->params.fragment < 4096)
        conn->params.fragment = 4096;
    FOR_ALL(limits, conn);
}

static bool conn_lanes(psc_conn_t *conn)
{
    if (!psc_replay_begin(conn))
        return false;
    conn->hands_from = UINT32_MAX;
    psc_rates_start(conn);
    FOR_ALL(begin, conn);
    return true;
}

static void conn_up(psc_conn_t *conn)
{
    psc_credit_start(conn);
    psc_match_hand_out_all(conn);
}

/* ---- control messages ---- */

static bool send_control(psc_conn_t *conn, psc_wire_id_t id)
{
    psc_wire_credit_t wire;

    if (id == PSC_WIRE_LANE_DOWN || id == PSC_WIRE_LANE_UP)
        return psc_rail_send(conn, id) == PSC_OK;
    if (id == PSC_WIRE_CREDIT && conn->replay)
        return psc_replay_ack(conn) == PSC_OK;
    return psc_credit_send(conn, id, &wire, sizeof wire, NULL, 0) == PSC_OK;
}

static bool send_due(psc_conn_t *conn)
{
    bool sent = false;

    if (conn->replay)
        return psc_replay_flush(conn);
    for (const psc_proto_t *const *at = psc_proto_list; *at; at++) {
        if ((*at)->flush && (*at)->flush(conn))
            sent = true;
    }
    return sent;
}

/* ---- a connection ends ---- */

/* Returns true if a protocol has ended the request of a connection that has
 * ended. */
static bool ended_by_protocol(psc_req_t *req, psc_status_t status)
{
    for (const psc_proto_t *const *at = psc_proto_list; *at; at++) {
        if ((*at)->ends && (*at)->ends(req, status))
            return true;
    }
    return false;
}

/* End a request of a connection that has ended. A receive that has matched a
 * complete message, but has no buffer yet, keeps the message. */
static void ends_request(psc_req_t *req, psc_status_t status)
{
    psc_unexp_t *unexp;

    if (ended_by_protocol(req, status))
        return;
    if (req->head.state != PSC_REQUEST_MATCHED) {
        unexp = req->stage == PSC_STAGE_LANDING ? psc_req_unexp(req) : NULL;
        if (unexp) {
            /* the message that the receive would get, if the peer had not
             * claimed the receive */
            psc_req_set_unexp(req, NULL);
            psc_match_put_back(unexp);
        }
        psc_unexp_unclaim(req);
        psc_req_fail(req, status);
        return;
    }
    unexp = psc_req_unexp(req);
    if (unexp && !unexp->rts)
        return;
    psc_list_remove(&req->link);
    psc_req_set_unexp(req, NULL);
    if (unexp)
        psc_unexp_free(unexp);
    psc_req_finish(req, status);
}

static void conn_ended(psc_conn_t *conn, psc_status_t status)
{
    conn->status = status;
    psc_requeue_conn_ended(conn);
    for (uint32_t i = 0; i < conn->n_lanes; i++)
        psc_proto_abort(conn->lanes[i]);
    psc_list_for_each(req, &conn->active, psc_req_t, link)
        ends_request(req, status);
    FOR_ALL(conn_ended, conn);
    psc_unexp_conn_failed(conn);
    psc_match_receives_ended(conn, status);
}

static void lane_lost(psc_lane_t *lane)
{
    psc_incoming_t *in = &lane->incoming;
    psc_req_t *req = in->kind == PSC_INCOMING_FRAG ? in->req : NULL;

    psc_proto_abort(lane);
    if (req && req->stage == PSC_STAGE_ENDING)
        psc_access_settle(req);
    psc_rail_lost(lane);
    psc_replay_lost(lane);
}

/* Returns true if the connection's CLOSE must wait for this request. A receive
 * without a buffer (MATCHED) may never get one, and one that has failed
 * (ENDING) waits for the end of the lane. */
static bool transfer_pending(const psc_req_t *req)
{
    if (req->kind == PSC_REQ_SEND)
        return req->stage != PSC_STAGE_LENT;
    return req->kind == PSC_REQ_RECV && req->stage != PSC_STAGE_ENDING &&
           req->head.state != PSC_REQUEST_MATCHED;
}

static bool transfers_pending(const psc_conn_t *conn)
{
    psc_list_for_each(req, (psc_list_t *)&conn->active, psc_req_t, link) {
        if (transfer_pending(req))
            return true;
    }
    return false;
}

static void conn_destroy(psc_conn_t *conn)
{
    psc_match_conn_destroy(conn);
    FOR_ALL(conn_destroyed, conn);
}

static void conn_closing(psc_conn_t *conn)
{
    FOR_ALL(conn_closing, conn);
}

/* ---- a worker ---- */

static void inbox_drain(psc_worker_t *worker)
{
    FOR_ALL(drain, worker);
}

const psc_upward_t psc_protocols = {
    .arrived = psc_proto_arrived,
    .begin = psc_proto_begin,
    .end = psc_proto_end,
    .advance = psc_proto_advance,
    .send_control = send_control,
    .send_fins = psc_rndv_send_fins,
    .replay = send_due,
    .conn_params = conn_params,
    .conn_lanes = conn_lanes,
    .lane_lost = lane_lost,
    .lane_sealed = psc_rail_sealed,
    .conn_up = conn_up,
    .conn_ended = conn_ended,
    .receives_ended = psc_match_receives_ended,
    .refuse = psc_refuse_announced,
    .conn_closing = conn_closing,
    .transfers_pending = transfers_pending,
    .conn_destroy = conn_destroy,
    .conn_freed = psc_replay_end,
    .inbox_drain = inbox_drain,
};

void psc_protocols_init(psc_worker_t *worker)
{
    worker->budget.max = worker->config.unexpected_max;
    worker->budget.window_max = worker->config.eager_window;
    psc_budget_share(&worker->budget, 0);
    psc_matching_init(&worker->matching);
    worker->protocols = psc_proto_list;
    worker->unmatched = psc_proto_unmatched;
    psc_list_init(&worker->memory.regions);
    FOR_ALL(worker_begin, worker);
}

void psc_protocols_stop(psc_worker_t *worker)
{
    psc_regions_destroy(worker);
    FOR_ALL(worker_destroyed, worker);
}

void psc_protocols_destroy(psc_worker_t *worker)
{
    psc_match_contexts_free(worker);
}
