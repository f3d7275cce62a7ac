/* The functions of psc_api_t for messages, requests and active messages. */
#include <stdlib.h>

#include "pscompy/transport/kit/clock.h"
#include "api_table.h"
#include "finish.h"
#include "pieces.h"
#include "progress/progress.h"
#include "../proto/am.h"
#include "../proto/message.h"
#include "../proto/lend.h"
#include "request.h"
#include "worker.h"

/* ---- messages ---- */

static inline psc_status_t api_send(psc_conn_t *conn,
                                    const psc_send_args_t *args,
                                    psc_request_t **request_p)
{
    psc_status_t status = psc_send_now(conn, args, 0);

    if (status != PSC_OK) {
        if (psc_send_reads_first(conn, args))
            psc_worker_progress_locked(
                conn->worker,
                conn->replay ? PSC_PASS_ALL
                             : psc_iface_bit(psc_conn_main_lane(conn)->slot));
        status = psc_send(conn, args, 0, request_p);
    }
    return status;
}

psc_status_t psc_api_send(psc_conn_t *conn, const psc_send_args_t *args,
                          psc_request_t **request_p)
{
    psc_status_t status;

    if (args->tag < 0)
        return PSC_ERR_INVALID;
    status = psc_worker_enter(conn->worker, args->flags);
    if (status != PSC_OK)
        return status;
    return psc_worker_left(conn->worker, api_send(conn, args, request_p));
}

static void api_packed_sent(psc_req_t *req)
{
    free(req->bulk->payload);
    req->bulk->on_done = NULL;
}

/* Send the packed message in args->iov. The request, if one is created, owns
 * the message's memory until the request has ended. */
static psc_status_t api_send_packed(psc_conn_t *conn,
                                    const psc_send_args_t *args,
                                    psc_request_t **request_p)
{
    psc_status_t status = api_send(conn, args, request_p);
    psc_req_t *req;

    if (status >= 0)
        psc_count(conn, PSC_COUNTER_copied_bytes, args->iov->len);
    if (status == PSC_INPROGRESS && (*request_p)->state != PSC_REQUEST_DONE) {
        req = psc_req_of(*request_p);
        req->bulk->payload = args->iov->base;
        req->bulk->on_done = api_packed_sent;
    } else {
        free(args->iov->base);
    }
    return status;
}

psc_status_t psc_api_send_strided(psc_conn_t *conn, const psc_send_args_t *args,
                                  psc_request_t **request_p)
{
    const psc_layout_t *layout = psc_layout_of(args->iov, args->n_iov);
    psc_send_args_t packed = *args;
    psc_status_t status;
    psc_iov_t piece;

    if (args->tag < 0 || !layout)
        return PSC_ERR_INVALID;
    piece.len = psc_layout_nbytes(layout);
    piece.base = malloc(piece.len);
    if (!piece.base)
        return PSC_ERR_NO_MEMORY;
    psc_layout_pack(layout, 0, piece.base, piece.len);
    packed.iov = &piece;
    packed.n_iov = 1;
    packed.flags &= ~PSC_FLAG_LEND;
    status = psc_worker_enter(conn->worker, args->flags);
    if (status == PSC_OK)
        return psc_worker_left(conn->worker,
                               api_send_packed(conn, &packed, request_p));
    free(piece.base);
    return status;
}

/* Take the lock for an operation that looks for a message. */
static psc_status_t api_enter_to_match(psc_worker_t *worker,
                                       const psc_recv_args_t *args)
{
    return args->tag >= 0 || args->tag == PSC_ANY_TAG
               ? psc_worker_enter(worker, args->flags)
               : PSC_ERR_INVALID;
}

/* Poll for the message while the call still holds the lock. No other thread has
 * the request yet, so it can be recycled here if the message arrives. */
static psc_status_t api_recv_poll(psc_worker_t *worker, unsigned polls,
                                  psc_result_t *result_p,
                                  psc_request_t **request_p)
{
    psc_request_t *request = *request_p;
    psc_req_t *req = psc_req_of(request);
    unsigned passes = 0;
    bool inside;

    req->inside = request->state == PSC_REQUEST_ACTIVE;
    while (request->state == PSC_REQUEST_ACTIVE && passes < polls &&
           psc_spin_held(worker, passes) && !psc_lock_wanted(&worker->lock)) {
        passes++;
        if (psc_worker_pass(worker, PSC_PASS_DUE) == 0)
            psc_clock_pause();
    }
    psc_spin_held_end(worker, passes, request->state != PSC_REQUEST_ACTIVE);
    psc_settle(worker);
    inside = req->inside;
    req->inside = false;
    if (request->state != PSC_REQUEST_DONE)
        return PSC_INPROGRESS;
    *result_p = request->result;
    *request_p = NULL;
    if (inside)
        psc_req_recycle(&worker->requests, req);
    else
        psc_req_release(req);
    return result_p->status;
}

psc_status_t psc_api_recv(psc_worker_t *worker, const psc_recv_args_t *args,
                          psc_result_t *result_p, psc_request_t **request_p)
{
    psc_status_t status = api_enter_to_match(worker, args);

    if (status != PSC_OK)
        return status;
    status = psc_recv(worker, args, result_p, request_p);
    if (status == PSC_INPROGRESS && args->polls)
        status = api_recv_poll(worker, args->polls, result_p, request_p);
    return psc_worker_left(worker, status);
}

psc_status_t psc_api_recv_supply(psc_request_t *request, const psc_iov_t *iov,
                                 size_t n_iov)
{
    psc_req_t *req = psc_req_of(request);

    return psc_worker_locked(psc_req_worker(req), 0,
                             psc_recv_supply(req, iov, n_iov));
}

psc_status_t psc_api_recv_view(psc_request_t *request, psc_view_t **view_p)
{
    psc_req_t *req = psc_req_of(request);

    return psc_worker_locked(psc_req_worker(req), 0,
                             psc_lend_view(req, view_p));
}

psc_status_t psc_api_probe(psc_worker_t *worker, const psc_recv_args_t *args,
                           psc_result_t *result_p, psc_request_t **request_p)
{
    psc_status_t status = api_enter_to_match(worker, args);

    if (status != PSC_OK)
        return status;
    return psc_worker_left(worker,
                           psc_recv_probe(worker, args, result_p, request_p));
}

psc_status_t psc_api_iprobe(psc_worker_t *worker, const psc_recv_args_t *args,
                            psc_result_t *result_p)
{
    psc_status_t status = api_enter_to_match(worker, args);

    if (status != PSC_OK)
        return status;
    psc_worker_progress_locked(worker, PSC_PASS_ALL);
    return psc_worker_left(worker, psc_recv_iprobe(worker, args, result_p));
}

/* ---- cancelling, and putting messages back ---- */

psc_status_t psc_api_cancel(psc_request_t *request)
{
    psc_req_t *req = psc_req_of(request);

    return psc_worker_locked(psc_req_worker(req), 0, psc_recv_cancel(req));
}

psc_status_t psc_api_recv_give_up(psc_request_t *request)
{
    psc_req_t *req = psc_req_of(request);

    return psc_worker_locked(psc_req_worker(req), 0, psc_requeue_request(req));
}

psc_status_t psc_api_recv_return(psc_worker_t *worker, uint32_t context,
                                 const psc_result_t *result,
                                 const psc_iov_t *iov, size_t n_iov)
{
    return psc_worker_locked(
        worker, 0, psc_requeue_message(worker, context, result, iov, n_iov));
}

/* ---- active messages ---- */

/* Maximum number of pieces of an active message, of which the message's header
 * is the first. */
#define API_AM_PIECES 16

psc_status_t psc_api_am_send(psc_conn_t *conn, uint32_t id, const void *header,
                             size_t header_len, const psc_send_args_t *args,
                             psc_request_t **request_p)
{
    psc_iov_t iov[API_AM_PIECES] = {{(void *)header, header_len}};
    psc_send_args_t whole = *args;
    psc_status_t status;

    if (id >= PSC_AM_OWN || header_len > PSC_AM_USER_HEADER_MAX ||
        args->n_iov >= API_AM_PIECES)
        return PSC_ERR_INVALID;
    for (size_t i = 0; i < args->n_iov; i++)
        iov[i + 1] = args->iov[i];
    whole.context = PSC_CONTEXT_AM;
    whole.tag = (int32_t)id;
    whole.iov = iov;
    whole.n_iov = args->n_iov + 1;
    status = psc_worker_enter(conn->worker, args->flags);
    if (status != PSC_OK)
        return status;
    status = psc_send(conn, &whole, (uint16_t)header_len, request_p);
    if (status >= 0)
        psc_count(conn, PSC_COUNTER_am_sent, 1);
    return psc_worker_left(conn->worker, status);
}

psc_status_t psc_api_am_handler(psc_worker_t *worker, uint32_t id,
                                psc_am_handler_t handler, void *arg)
{
    if (id >= PSC_AM_OWN)
        return PSC_ERR_INVALID;
    return psc_worker_locked(worker, 0,
                             psc_am_set_handler(worker, id, handler, arg));
}

psc_message_t *psc_api_message_poll(psc_worker_t *worker)
{
    psc_message_t *message;

    if (atomic_load(&worker->am.n_queued) == 0 ||
        psc_worker_enter(worker, 0) != PSC_OK)
        return NULL;
    message = psc_am_poll(worker);
    psc_worker_leave(worker);
    return message;
}

void psc_api_message_free(psc_worker_t *worker, psc_message_t *message)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    psc_am_message_free(message);
    psc_worker_leave(worker);
}
