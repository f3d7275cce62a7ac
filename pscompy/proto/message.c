#include "message.h"

#include "../core/conn.h"
#include "../core/conn_flush.h"
#include "../core/conn_queue.h"
#include "../core/finish.h"
#include "../core/progress/sleep.h"
#include "../core/request.h"
#include "../core/upward.h"
#include "credit.h"
#include "eager.h"
#include "list.h"
#include "match.h"
#include "rndv.h"

static inline psc_status_t message_request(psc_worker_t *worker,
                                           psc_req_kind_t kind,
                                           const psc_recv_args_t *args,
                                           psc_req_t **req_p)
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
        return status; /* not PSC_OK: gcc sees that *req_p is not used */
    }
    req->context = (uint16_t)args->context;
    req->head.result.tag = args->tag;
    if (kind != PSC_REQ_SEND)
        psc_req_set_source(req, args->source);
    req->head.flags = args->flags;
    req->head.owner = args->owner;
    *req_p = req;
    return PSC_OK;
}

/* ---- send ---- */

psc_status_t psc_message_send_progress(psc_req_t *req)
{
    psc_status_t status = PSC_ERR_UNSUPPORTED;

    if (psc_req_conn(req)->state == PSC_CONN_CONNECTING)
        return PSC_ERR_NO_RESOURCE;
    for (const psc_proto_t *const *at = psc_proto_list;
         *at && status == PSC_ERR_UNSUPPORTED; at++) {
        if ((*at)->may && (*at)->may(req))
            status = (*at)->start(req);
    }
    return status;
}

bool psc_message_reads_first(const psc_conn_t *conn,
                             const psc_send_args_t *args)
{
    uint64_t len = psc_iov_total(args->iov, args->n_iov);

    if (conn->state != PSC_CONN_UP)
        return false;
    if (!psc_eager_fits(conn, len))
        return len <= conn->looks_first;
    return !psc_flow_has(&conn->flow, psc_credit_cost(len));
}

psc_status_t psc_message_send_now(psc_conn_t *conn, const psc_send_args_t *args,
                                  uint16_t aux)
{
    psc_message_head_t head = {args->context, args->tag, aux};
    uint64_t len = psc_iov_total(args->iov, args->n_iov);

    if (conn->state != PSC_CONN_UP || args->flags & PSC_FLAG_LEND ||
        !psc_list_empty(&conn->work.queues[PSC_WORK_ORDERED]) ||
        !psc_eager_fits(conn, len) || len >= conn->params.zcopy_min ||
        !psc_flow_has(&conn->flow, psc_credit_cost(len)))
        return PSC_ERR_NO_RESOURCE;
    if (__builtin_expect(conn->matches, 0) && args->context != PSC_CONTEXT_AM)
        return conn->hands_out->send_now(conn, &head, args->iov, args->n_iov,
                                         len);
    return psc_eager_send(conn, &head, args->iov, args->n_iov, len, NULL);
}

/* Begin a send. A request whose message was sent at once is recycled, and wakes
 * no sleeping threads, because the consumer does not have the request yet. */
static psc_status_t message_start(psc_req_t *req, psc_request_t **request_p)
{
    psc_conn_t *conn = psc_req_conn(req);
    bool first = conn->state == PSC_CONN_UP &&
                 psc_list_empty(&conn->work.queues[PSC_WORK_ORDERED]);

    req->inside = true;
    if (!first || conn->worker->up->advance(req) == PSC_ERR_NO_RESOURCE) {
        psc_conn_queue(conn, req);
        psc_conn_flush(conn);
    }
    req->inside = false;
    if (req->head.state != PSC_REQUEST_DONE)
        return PSC_INPROGRESS;
    if (req->head.result.status != PSC_OK) {
        psc_req_notify(req);
        return PSC_INPROGRESS;
    }
    *request_p = NULL;
    psc_req_recycle(&conn->worker->requests, req);
    return PSC_OK;
}

psc_status_t psc_message_send(psc_conn_t *conn, const psc_send_args_t *args,
                              uint16_t aux, psc_request_t **request_p)
{
    psc_status_t status = psc_conn_usable(conn);
    psc_req_t *req;

    if (status != PSC_OK)
        return status;
    if (psc_message_send_now(conn, args, aux) == PSC_OK)
        return PSC_OK;
    status = message_request(conn->worker, PSC_REQ_SEND,
                             &(psc_recv_args_t){.context = args->context,
                                                .tag = args->tag,
                                                .iov = args->iov,
                                                .n_iov = args->n_iov,
                                                .flags = args->flags,
                                                .owner = args->owner},
                             &req);
    if (status != PSC_OK)
        return status;
    req->bulk->aux = aux;
    req->head.result.tag = args->tag;
    req->head.result.nbytes = psc_req_total(req);
    psc_req_attach(req, conn);
    psc_req_stage_set(req, PSC_STAGE_SEND);
    *request_p = &req->head;
    return message_start(req, request_p);
}

/* ---- receive ---- */

/* Returns an error if no message can arrive from the source. If connecting has
 * failed, the connection is lazy again; a receive posted now would wait
 * forever, because the peer is not asked to connect. */
static psc_status_t message_may_come(const psc_recv_args_t *args)
{
    return args->source ? psc_conn_usable(args->source) : PSC_OK;
}

/* Continue a receive that has a buffer and a message which has not arrived
 * completely. */
static void message_recv_go_on(psc_req_t *req, psc_unexp_t *unexp)
{
    if (unexp->rts) {
        psc_rndv_recv_unexpected(req, unexp);
        return;
    }
    psc_unexp_claim(req, unexp);
}

/* Returns true if the message has arrived completely and the receive has memory
 * for it. */
static bool message_whole(const psc_recv_args_t *args, const psc_unexp_t *unexp)
{
    if (unexp->rts || unexp->arriving)
        return false;
    return !(args->flags & PSC_FLAG_NO_BUFFER) ||
           (args->n_iov && unexp->len <= psc_iov_total(args->iov, args->n_iov));
}

static psc_status_t message_recv_found(psc_worker_t *worker,
                                       const psc_recv_args_t *args,
                                       psc_unexp_t *unexp,
                                       psc_result_t *result_p,
                                       psc_request_t **request_p)
{
    psc_req_t *req;
    psc_status_t status;

    if (message_whole(args, unexp))
        return psc_eager_deliver(unexp, args->iov, args->n_iov, result_p);
    status = message_request(worker, PSC_REQ_RECV, args, &req);
    if (status != PSC_OK)
        return status;
    *request_p = &req->head;
    psc_unexp_take(unexp);
    if (args->flags & PSC_FLAG_NO_BUFFER)
        psc_req_no_buffer(req, unexp);
    else
        message_recv_go_on(req, unexp);
    psc_conn_flush(psc_req_conn(req));
    return PSC_INPROGRESS;
}

static psc_status_t message_post(psc_req_t *req, psc_match_lists_t *lists,
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

psc_status_t psc_message_recv(psc_worker_t *worker, const psc_recv_args_t *args,
                              psc_result_t *result_p, psc_request_t **request_p)
{
    psc_match_lists_t *lists;
    psc_unexp_t *unexp = psc_unexp_find(worker, args, &lists);
    psc_status_t status;
    psc_req_t *req;

    if (unexp)
        return message_recv_found(worker, args, unexp, result_p, request_p);
    status = message_may_come(args);
    if (status != PSC_OK)
        return status;
    status = message_request(worker, PSC_REQ_RECV, args, &req);
    if (status != PSC_OK)
        return status;
    *request_p = &req->head;
    if (args->source && psc_req_total(req) >= args->source->hands_from &&
        psc_match_hand_out(req))
        return PSC_INPROGRESS;
    return message_post(req, lists, request_p);
}

/* Continue a receive that was given its buffer, and whose message has not
 * arrived completely. The request may even be done before the function
 * returns. */
static psc_status_t message_supply_rest(psc_req_t *req, psc_unexp_t *unexp)
{
    psc_worker_t *worker = psc_req_worker(req);

    __atomic_store_n(&req->head.state, PSC_REQUEST_ACTIVE, __ATOMIC_RELEASE);
    message_recv_go_on(req, unexp);
    psc_conn_flush(psc_req_conn(req));
    req->inside = false;
    if (req->head.state != PSC_REQUEST_DONE)
        return PSC_INPROGRESS;
    psc_req_returned(req);
    /* other threads may wait for the request */
    psc_wake(worker, PSC_WAKE_EVENT);
    return PSC_OK;
}

psc_status_t psc_message_supply(psc_req_t *req, const psc_iov_t *iov,
                                size_t n_iov)
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
        return message_supply_rest(req, unexp);
    /* MATCHED changes directly to DONE, so that a thread woken for MATCHED
     * never sees ACTIVE. */
    psc_eager_finish(req, unexp);
    psc_req_returned(req);
    return PSC_OK;
}

/* ---- probe ---- */

psc_status_t psc_message_iprobe(psc_worker_t *worker,
                                const psc_recv_args_t *args,
                                psc_result_t *result_p)
{
    psc_match_lists_t *lists;
    psc_unexp_t *unexp = psc_unexp_find(worker, args, &lists);
    psc_status_t status;

    if (!unexp) {
        status = message_may_come(args);
        return status == PSC_OK ? PSC_INPROGRESS : status;
    }
    *result_p = (psc_result_t){
        .status = PSC_OK, .tag = unexp->tag, .nbytes = unexp->len};
    psc_conn_sign(unexp->conn, result_p);
    return PSC_OK;
}

psc_status_t psc_message_probe(psc_worker_t *worker,
                               const psc_recv_args_t *args,
                               psc_result_t *result_p,
                               psc_request_t **request_p)
{
    psc_status_t status = psc_message_iprobe(worker, args, result_p);
    psc_req_t *req;

    if (status != PSC_INPROGRESS)
        return status;
    status = message_request(worker, PSC_REQ_PROBE, args, &req);
    return status == PSC_OK ? message_post(req, NULL, request_p) : status;
}

/* ---- cancel ---- */

/* Give the message to a receive that was posted while the message was out of
 * the queue. */
static void message_meet(psc_req_t *req, psc_unexp_t *unexp)
{
    psc_conn_t *conn = unexp->conn;

    if (req->head.flags & PSC_FLAG_NO_BUFFER)
        psc_req_no_buffer(req, unexp);
    else if (unexp->rts || unexp->arriving)
        message_recv_go_on(req, unexp);
    else
        psc_eager_finish(req, unexp);
    psc_conn_flush(conn);
}

/* Puts a message back into its queue. A receive that was posted while the
 * message was out of the queue gets the message at once. If the peer may be
 * writing into the receive's memory (tuple_am.h), the receive gets the message
 * when the peer has answered CONCEAL. */
psc_status_t psc_message_put_back(psc_unexp_t *unexp)
{
    psc_status_t status = psc_match_put_back(unexp);
    psc_req_t *req;

    if (status != PSC_OK) {
        psc_unexp_free(unexp);
        return status;
    }
    req = psc_match_return(unexp);
    if (!req)
        return PSC_OK;
    psc_unexp_take(unexp);
    if (req->stage == PSC_STAGE_LANDING)
        psc_req_set_unexp(req, unexp);
    else
        message_meet(req, unexp);
    return PSC_OK;
}

void psc_message_returned(psc_req_t *req)
{
    psc_unexp_t *unexp = psc_req_unexp(req);

    req->remote_writable = false;
    psc_req_forget_lane(req, psc_conn_main_lane(psc_req_conn(req)));
    psc_req_set_unexp(req, NULL);
    if (unexp)
        message_meet(req, unexp);
    else
        psc_req_finish(req, req->error ? req->error : PSC_ERR_CANCELLED);
}

/* Returns true if the receive has matched a message of which nothing has been
 * written to its buffer. */
static bool message_waits(const psc_req_t *req)
{
    return req->head.state == PSC_REQUEST_MATCHED ||
           (req->stage == PSC_STAGE_CLAIMED && psc_req_unexp(req) &&
            psc_req_unexp(req)->req == req);
}

psc_status_t psc_message_cancel(psc_req_t *req)
{
    psc_unexp_t *unexp;

    if (req->head.state == PSC_REQUEST_DONE)
        return PSC_ERR_INVALID;
    if (message_waits(req)) {
        unexp = psc_req_unexp(req);
        psc_unexp_unclaim(req);
        psc_req_set_unexp(req, NULL);
        psc_req_finish(req, PSC_ERR_CANCELLED);
        return psc_message_put_back(unexp);
    }
    if (req->stage == PSC_STAGE_LANDING && req->remote_writable) {
        /* CONCEAL was sent; a message may wait in `unexp` for the answer */
        unexp = psc_req_unexp(req);
        psc_req_set_unexp(req, NULL);
        if (unexp)
            psc_message_put_back(unexp);
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
