/* What the protocols do for the core when a connection or a worker begins and
 * ends, and its control messages. */
#include "../memory/access.h"
#include "../upward.h"

#include "am.h"
#include "credit.h"
#include "giveback.h"
#include "lend.h"
#include "match.h"
#include "rma.h"
#include "tag.h"

/* ---- a connection begins ---- */

void psc_proto_conn_init(psc_conn_t *conn)
{
    psc_credit_init(conn);
    psc_list_init(&conn->maps);
}

void psc_proto_conn_params(psc_conn_t *conn, const psc_proto_params_t *params)
{
    conn->params = *params;
    if (conn->params.eager_max > PSC_EAGER_LIMIT)
        conn->params.eager_max = PSC_EAGER_LIMIT;
    if (conn->params.fragment < 4096)
        conn->params.fragment = 4096;
}

void psc_proto_conn_lanes(psc_conn_t *conn)
{
    char reason[PSC_REASON_MAX];

    conn->tagged = psc_lane_tagged(psc_conn_main_lane(conn), reason);
}

void psc_proto_conn_up(psc_conn_t *conn)
{
    psc_credit_start(conn);
}

/* ---- control messages ---- */

bool psc_proto_send_control(psc_conn_t *conn, psc_wire_id_t id)
{
    bool due = conn->credit_due;
    uint32_t told = conn->credit_told;
    psc_wire_credit_t wire = {.credit = psc_credit_stamp(conn)};

    if (psc_lane_send(psc_conn_main_lane(conn), id, &wire, sizeof wire, NULL,
                      0) == PSC_OK)
        return true;
    conn->credit_due = due;
    conn->credit_told = told;
    return false;
}

/* ---- a connection ends ---- */

/* A receive that has its message but no buffer yet keeps a whole message. */
static void ends_request(psc_req_t *req, psc_status_t status)
{
    psc_unexp_t *unexp = req->unexp;

    if (req->kind == PSC_REQ_LOAN) {
        psc_lend_end(req);
        return;
    }
    if (req->head.state != PSC_REQUEST_MATCHED) {
        psc_match_unclaim(req);
        psc_req_fail(req, psc_lend_outcome(req, status));
        return;
    }
    if (unexp && !unexp->rts)
        return;
    psc_list_remove(&req->conn_link);
    req->unexp = NULL;
    if (unexp)
        psc_unexp_free(unexp);
    psc_req_finish(req, status);
}

void psc_proto_receives_ended(psc_conn_t *conn, psc_status_t status)
{
    psc_list_for_each(queue, &conn->queues, psc_match_queue_t, link) {
        psc_list_for_each(req, &queue->posted, psc_req_t, link) {
            psc_list_remove(&req->link);
            psc_req_finish(req, status);
        }
        psc_list_for_each(req, &queue->tagged, psc_req_t, link)
            psc_tag_recv_end(req, status);
    }
    psc_list_for_each(probe, &conn->worker->probes, psc_req_t, link) {
        if (probe->source != conn)
            continue;
        psc_list_remove(&probe->link);
        psc_req_finish(probe, status);
    }
}

void psc_proto_conn_ended(psc_conn_t *conn, psc_status_t status)
{
    conn->status = status;
    psc_am_conn_ended(conn); /* first: the end of another makes room for it */
    psc_giveback_conn_ended(conn);
    for (uint32_t i = 0; i < conn->n_lanes; i++)
        psc_proto_abort(conn->lanes[i]);
    psc_list_for_each(req, &conn->active, psc_req_t, conn_link)
        ends_request(req, status);
    psc_lend_conn_ended(conn);
    psc_match_conn_failed(conn);
    psc_proto_receives_ended(conn, status);
}

void psc_proto_conn_closing(psc_conn_t *conn)
{
    psc_lend_conn_closing(conn);
}

bool psc_proto_sends_pending(const psc_conn_t *conn)
{
    psc_list_for_each(req, (psc_list_t *)&conn->active, psc_req_t, conn_link) {
        if (req->kind == PSC_REQ_SEND && req->stage != PSC_STAGE_LENT)
            return true;
    }
    return false;
}

void psc_proto_conn_destroy(psc_conn_t *conn)
{
    psc_match_conn_destroy(conn);
}

/* ---- a worker ends ---- */

unsigned psc_proto_regions_revoke(psc_worker_t *worker)
{
    return psc_rma_worker_revoke(worker);
}

void psc_proto_worker_stop(psc_worker_t *worker)
{
    psc_rma_worker_destroy(worker);
    psc_am_worker_destroy(worker);
    psc_lend_worker_destroy(worker);
}

void psc_proto_worker_destroy(psc_worker_t *worker)
{
    psc_match_worker_destroy(worker);
}

void psc_proto_inbox_drain(psc_worker_t *worker)
{
    psc_am_inbox_drain(worker);
    psc_lend_drain(worker);
}
