#include "message.h"

#include "../core/conn.h"
#include "../core/finish.h"
#include "../core/progress/progress.h"
#include "eager.h"
#include "match.h"
#include "rndv.h"

psc_status_t psc_message_request(psc_worker_t *worker, psc_req_kind_t kind,
                                 const psc_recv_args_t *args, psc_req_t **req_p)
{
    psc_req_t *req = kind == PSC_REQ_SEND
                         ? psc_req_create_bulk(&worker->requests, kind)
                         : psc_req_create(&worker->requests, kind);
    psc_status_t status;

    if (!req)
        return PSC_ERR_NO_MEMORY;
    status = psc_req_set_iov(req, args->iov, args->n_iov);
    if (status != PSC_OK) {
        psc_req_abandon(req, status);
        return status;
    }
    req->context = args->context;
    req->head.result.tag = args->tag;
    if (kind != PSC_REQ_SEND)
        psc_req_set_source(req, args->source);
    req->head.flags = args->flags;
    req->head.owner = args->owner;
    *req_p = req;
    return PSC_OK;
}

/* ---- receive ---- */

/* Returns an error if no message can arrive from the source. If connecting has
 * failed, the connection is lazy again; a receive posted now would wait
 * forever, because the peer is not asked to connect. */
static psc_status_t recv_may_come(const psc_recv_args_t *args)
{
    return args->source ? psc_conn_usable(args->source) : PSC_OK;
}

/* Continue a receive that has a buffer and a message which has not arrived
 * completely. */
static void recv_go_on(psc_req_t *req, psc_unexp_t *unexp)
{
    if (unexp->rts) {
        psc_rndv_recv_unexpected(req, unexp);
        return;
    }
    psc_unexp_claim(req, unexp);
}

/* Returns true if the message has arrived completely and the receive has memory
 * for it. */
static bool recv_whole(const psc_recv_args_t *args, const psc_unexp_t *unexp)
{
    if (unexp->rts || unexp->arriving)
        return false;
    return !(args->flags & PSC_FLAG_NO_BUFFER) ||
           (args->n_iov && unexp->len <= psc_iov_total(args->iov, args->n_iov));
}

static psc_status_t recv_found(psc_worker_t *worker,
                               const psc_recv_args_t *args, psc_unexp_t *unexp,
                               psc_result_t *result_p,
                               psc_request_t **request_p)
{
    psc_req_t *req;
    psc_status_t status;

    if (recv_whole(args, unexp))
        return psc_eager_deliver(unexp, args->iov, args->n_iov, result_p);
    status = psc_message_request(worker, PSC_REQ_RECV, args, &req);
    if (status != PSC_OK)
        return status;
    *request_p = &req->head;
    psc_unexp_take(unexp);
    if (args->flags & PSC_FLAG_NO_BUFFER)
        psc_req_no_buffer(req, unexp);
    else
        recv_go_on(req, unexp);
    psc_conn_flush(psc_req_conn(req));
    return PSC_INPROGRESS;
}

static psc_status_t recv_post(psc_req_t *req, psc_match_lists_t *lists,
                              psc_request_t **request_p)
{
    psc_status_t status = psc_match_post(req, lists);

    if (status == PSC_OK) {
        *request_p = &req->head;
        return PSC_INPROGRESS;
    }
    *request_p = NULL;
    return psc_req_abandon(req, status);
}

psc_status_t psc_recv(psc_worker_t *worker, const psc_recv_args_t *args,
                      psc_result_t *result_p, psc_request_t **request_p)
{
    psc_match_lists_t *lists;
    psc_unexp_t *unexp = psc_unexp_find(worker, args, &lists);
    psc_status_t status;
    psc_req_t *req;

    if (unexp)
        return recv_found(worker, args, unexp, result_p, request_p);
    status = recv_may_come(args);
    if (status != PSC_OK)
        return status;
    status = psc_message_request(worker, PSC_REQ_RECV, args, &req);
    if (status != PSC_OK)
        return status;
    *request_p = &req->head;
    if (args->source && psc_req_total(req) >= args->source->hands_from &&
        psc_match_hand_out(req))
        return PSC_INPROGRESS;
    return recv_post(req, lists, request_p);
}

/* Continue a receive that was given its buffer, and whose message has not
 * arrived completely. The request may even be done before the function
 * returns. */
static psc_status_t recv_supply_rest(psc_req_t *req, psc_unexp_t *unexp)
{
    psc_worker_t *worker = psc_req_worker(req);

    __atomic_store_n(&req->head.state, PSC_REQUEST_ACTIVE, __ATOMIC_RELEASE);
    recv_go_on(req, unexp);
    psc_conn_flush(psc_req_conn(req));
    req->inside = false;
    if (req->head.state != PSC_REQUEST_DONE)
        return PSC_INPROGRESS;
    psc_req_returned(req);
    /* other threads may wait for the request */
    psc_wake(worker, PSC_WAKE_EVENT);
    return PSC_OK;
}

psc_status_t psc_recv_supply(psc_req_t *req, const psc_iov_t *iov, size_t n_iov)
{
    psc_unexp_t *unexp;
    psc_status_t status;

    if (req->head.state != PSC_REQUEST_MATCHED)
        return PSC_ERR_INVALID;
    status = psc_req_set_iov(req, iov, n_iov);
    if (status != PSC_OK)
        return status;
    unexp = psc_req_unexp(req);
    psc_req_set_unexp(req, NULL);
    req->head.flags &= ~PSC_FLAG_NO_BUFFER;
    req->inside = true;
    if (unexp->rts || unexp->arriving)
        return recv_supply_rest(req, unexp);
    /* MATCHED changes directly to DONE, so that a thread woken for MATCHED
     * never sees ACTIVE. */
    psc_eager_finish(req, unexp);
    psc_req_returned(req);
    return PSC_OK;
}

/* ---- probe ---- */

psc_status_t psc_recv_iprobe(psc_worker_t *worker, const psc_recv_args_t *args,
                             psc_result_t *result_p)
{
    psc_match_lists_t *lists;
    psc_unexp_t *unexp = psc_unexp_find(worker, args, &lists);
    psc_status_t status;

    if (!unexp) {
        status = recv_may_come(args);
        return status == PSC_OK ? PSC_INPROGRESS : status;
    }
    *result_p = (psc_result_t){
        .status = PSC_OK, .tag = unexp->tag, .nbytes = unexp->len};
    psc_conn_sign(unexp->conn, result_p);
    return PSC_OK;
}

psc_status_t psc_recv_probe(psc_worker_t *worker, const psc_recv_args_t *args,
                            psc_result_t *result_p, psc_request_t **request_p)
{
    psc_status_t status = psc_recv_iprobe(worker, args, result_p);
    psc_req_t *req;

    if (status != PSC_INPROGRESS)
        return status;
    status = psc_message_request(worker, PSC_REQ_PROBE, args, &req);
    return status == PSC_OK ? recv_post(req, NULL, request_p) : status;
}

/* ---- cancel ---- */

/* Give the message to a receive that was posted while the message was out of
 * the queue. */
static void recv_meet(psc_req_t *req, psc_unexp_t *unexp)
{
    psc_conn_t *conn = unexp->conn;

    if (req->head.flags & PSC_FLAG_NO_BUFFER)
        psc_req_no_buffer(req, unexp);
    else if (unexp->rts || unexp->arriving)
        recv_go_on(req, unexp);
    else
        psc_eager_finish(req, unexp);
    psc_conn_flush(conn);
}

/* A receive that was posted while the message was out of the queue gets it at
 * once, or, if the peer may be writing into the receive's memory, when the
 * protocol calls psc_recv_returned. */
psc_status_t psc_recv_put_back(psc_unexp_t *unexp)
{
    psc_status_t status = psc_match_put_back(unexp);
    psc_req_t *req;

    if (status != PSC_OK)
        return status == PSC_ERR_CLOSED ? PSC_OK : status;
    req = psc_match_return(unexp);
    if (!req)
        return PSC_OK;
    psc_unexp_take(unexp);
    if (req->stage == PSC_STAGE_LANDING)
        psc_req_set_unexp(req, unexp);
    else
        recv_meet(req, unexp);
    return PSC_OK;
}

void psc_recv_returned(psc_req_t *req)
{
    psc_unexp_t *unexp = psc_req_unexp(req);

    req->remote_writable = false;
    psc_req_forget_lane(req, psc_conn_main_lane(psc_req_conn(req)));
    psc_req_set_unexp(req, NULL);
    if (unexp)
        recv_meet(req, unexp);
    else
        psc_req_finish(req, req->error ? req->error : PSC_ERR_CANCELLED);
}

/* Returns true if the receive has matched a message of which nothing has been
 * written to its buffer. */
static bool recv_waits(const psc_req_t *req)
{
    return req->head.state == PSC_REQUEST_MATCHED ||
           (req->stage == PSC_STAGE_CLAIMED && psc_req_unexp(req) &&
            psc_req_unexp(req)->req == req);
}

psc_status_t psc_recv_cancel(psc_req_t *req)
{
    psc_unexp_t *unexp;

    if (req->head.state == PSC_REQUEST_DONE || req->kind == PSC_REQ_COLLECTIVE)
        return PSC_ERR_INVALID;
    if (recv_waits(req)) {
        unexp = psc_req_unexp(req);
        psc_unexp_unclaim(req);
        psc_req_set_unexp(req, NULL);
        psc_req_finish(req, PSC_ERR_CANCELLED);
        return psc_recv_put_back(unexp);
    }
    if (req->stage == PSC_STAGE_LANDING && req->remote_writable) {
        /* the peer was asked; a message may wait in `unexp` for the answer */
        unexp = psc_req_unexp(req);
        psc_req_set_unexp(req, NULL);
        if (unexp)
            psc_recv_put_back(unexp);
        return PSC_INPROGRESS;
    }
    if (req->stage == PSC_STAGE_HANDED) {
        psc_status_t status = psc_match_recall(req);

        if (status != PSC_OK)
            return status;
        psc_req_finish(req, PSC_ERR_CANCELLED);
        return PSC_OK;
    }
    if (req->stage != PSC_STAGE_POSTED && req->stage != PSC_STAGE_SEND &&
        req->stage != PSC_STAGE_OFFERED && req->kind != PSC_REQ_EVENT)
        return PSC_ERR_INVALID;
    if (req->stage == PSC_STAGE_POSTED)
        psc_match_leave(req);
    else
        psc_req_unqueue(req);
    psc_req_finish(req, PSC_ERR_CANCELLED);
    return PSC_OK;
}
