#include "message.h"

#include <string.h>

#include "../core/pieces.h"
#include "../core/memory/memory.h"
#include "credit.h"
#include "eager.h"

/* ---- the record that gets a copy of the message ---- */

static psc_unexp_t *requeue_record(psc_conn_t *conn, uint32_t context,
                                   const psc_result_t *result, uint64_t room)
{
    uint64_t have = result->nbytes < room ? result->nbytes : room;
    psc_unexp_t *unexp =
        psc_unexp_create(conn, context, result->tag, result->nbytes, have);

    if (!unexp)
        return NULL;
    unexp->order = result->order;
    unexp->lost = result->nbytes - have;
    unexp->kept = have + PSC_CREDIT_OVERHEAD;
    conn->worker->budget.kept += unexp->kept;
    psc_count(conn, PSC_COUNTER_given_back, 1);
    return unexp;
}

static void requeue_copy(psc_unexp_t *unexp, const psc_iov_t *iov, size_t n_iov)
{
    const psc_layout_t *layout = psc_layout_of(iov, n_iov);
    size_t left = unexp->len - unexp->lost, done = 0;

    if (layout) {
        done = psc_layout_pack(layout, 0, unexp->payload, left);
        n_iov = 0;
    }
    for (size_t i = 0; i < n_iov && left > 0; i++) {
        size_t take = iov[i].len < left ? iov[i].len : left;

        if (take)
            memcpy(unexp->payload + done, iov[i].base, take);
        done += take;
        left -= take;
    }
    psc_count(unexp->conn, PSC_COUNTER_copied_bytes, done);
}

/* ---- a message that has arrived ---- */

static psc_conn_t *requeue_conn(psc_worker_t *worker, uint64_t id)
{
    psc_list_for_each(conn, &worker->conns, psc_conn_t, link) {
        if (conn->id == id)
            return conn;
    }
    return NULL;
}

psc_status_t psc_requeue_message(psc_worker_t *worker, uint32_t context,
                                 const psc_result_t *result,
                                 const psc_iov_t *iov, size_t n_iov)
{
    psc_conn_t *conn = requeue_conn(worker, result->source);
    psc_unexp_t *unexp;

    if (!conn)
        return PSC_ERR_CLOSED;
    unexp = requeue_record(conn, context, result, psc_iov_total(iov, n_iov));
    if (!unexp)
        return PSC_ERR_NO_MEMORY;
    requeue_copy(unexp, iov, n_iov);
    return psc_recv_put_back(unexp);
}

/* ---- a message that is still arriving ---- */

/* Free the record of a message that will never be complete, and detach the
 * receives that have matched it. Returns the last of these receives, or
 * NULL. */
static psc_req_t *requeue_drop(psc_unexp_t *unexp)
{
    psc_req_t *left = NULL;

    psc_list_for_each(req, &unexp->conn->active, psc_req_t, link) {
        if (psc_req_unexp(req) != unexp || req->bulk->on_done)
            continue;
        psc_unexp_unclaim(req);
        psc_req_set_unexp(req, NULL);
        left = req;
    }
    psc_unexp_free(unexp);
    return left;
}

static void requeue_failed(psc_unexp_t *unexp, psc_status_t status)
{
    psc_req_t *req = requeue_drop(unexp);

    if (req && req->stage == PSC_STAGE_LANDING)
        /* psc_recv_returned finishes the request with this error */
        req->error = status;
    else if (req)
        psc_req_fail(req, status);
}

/* Called when a receive ends whose message was requeued while it arrived. The
 * receive's buffer has the message now, or the message has failed. */
static void requeue_settled(psc_req_t *req)
{
    psc_unexp_t *unexp = psc_req_unexp(req);
    psc_status_t status = req->head.result.status;

    req->bulk->on_done = NULL;
    psc_req_set_unexp(req, NULL);
    if (status != PSC_OK && status != PSC_ERR_TRUNCATED) {
        requeue_failed(unexp, status);
        return;
    }
    req->head.result.status = PSC_ERR_CANCELLED;
    requeue_copy(unexp, psc_req_iov(req), req->n_iov);
    psc_eager_complete(unexp);
}

/* Called when a receive ends that was given back before anything was known of
 * its message. */
static void requeue_late(psc_req_t *req)
{
    psc_result_t *result = &req->head.result;

    req->bulk->on_done = NULL;
    if ((result->status == PSC_OK || result->status == PSC_ERR_TRUNCATED) &&
        psc_requeue_message(psc_req_worker(req), req->context, result,
                            psc_req_iov(req), req->n_iov) == PSC_OK)
        result->status = PSC_ERR_CANCELLED;
}

void psc_requeue_met(psc_req_t *req)
{
    if (req->bulk->on_done != requeue_late)
        return;
    req->bulk->on_done = NULL;
    psc_requeue_request(req);
}

/* Returns true if the message is being transferred into the receive's buffer;
 * *result_p then describes it. */
static bool requeue_moves(const psc_req_t *req, psc_result_t *result_p)
{
    const psc_incoming_t *in;

    *result_p = req->head.result;
    switch (req->stage) {
    case PSC_STAGE_SEND_RTR:
    case PSC_STAGE_AWAIT_DATA:
    case PSC_STAGE_GET:
    case PSC_STAGE_SEND_FIN:
        return true;
    case PSC_STAGE_LANDING:
        /* bulk->len is set when the message is known */
        return req->bulk->len > 0;
    case PSC_STAGE_CLAIMED:
        in = &psc_conn_main_lane(psc_req_conn(req))->incoming;
        result_p->nbytes = in->len;
        return psc_incoming_for(in, req);
    default:
        return false;
    }
}

psc_status_t psc_requeue_request(psc_req_t *req)
{
    psc_status_t status = psc_recv_cancel(req);
    psc_result_t result;
    psc_unexp_t *unexp;

    if (status != PSC_ERR_INVALID || req->kind != PSC_REQ_RECV ||
        req->bulk->parts || req->head.state == PSC_REQUEST_DONE ||
        req->error != PSC_OK)
        return status;
    if (req->bulk->on_done) /* the request is being requeued already */
        return PSC_INPROGRESS;
    if (!psc_req_extend(req))
        return PSC_ERR_NO_MEMORY;
    if (!requeue_moves(req, &result)) {
        req->bulk->on_done = requeue_late;
        return PSC_INPROGRESS;
    }
    unexp = requeue_record(psc_req_conn(req), req->context, &result,
                           psc_req_total(req));
    if (!unexp)
        return PSC_ERR_NO_MEMORY;
    unexp->arriving = true;
    status = psc_recv_put_back(unexp);
    if (status != PSC_OK)
        return status;
    psc_req_set_unexp(req, unexp);
    req->bulk->on_done = requeue_settled;
    return PSC_INPROGRESS;
}

/* ---- the end of a connection ---- */

void psc_requeue_conn_ended(psc_conn_t *conn)
{
    psc_list_for_each(req, &conn->active, psc_req_t, link) {
        if (req->bulk->on_done != requeue_settled)
            continue;
        req->bulk->on_done = NULL;
        requeue_drop(psc_req_unexp(req));
        psc_req_set_unexp(req, NULL);
    }
}
