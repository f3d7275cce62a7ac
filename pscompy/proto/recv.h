/* Receiving messages: receive, probe, cancel, and messages that are put back.
 * Called with the worker's lock held; api_message.c takes it. */
#pragma once

#include "../core/finish.h"
#include "../core/request.h"

/* Create the request of a send, a receive or a probe. */
static inline psc_status_t psc_message_request(psc_worker_t *worker,
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

psc_status_t psc_recv(psc_worker_t *worker, const psc_recv_args_t *args,
                      psc_result_t *result_p, psc_request_t **request_p);
psc_status_t psc_recv_supply(psc_req_t *req, const psc_iov_t *iov,
                             size_t n_iov);
psc_status_t psc_recv_iprobe(psc_worker_t *worker, const psc_recv_args_t *args,
                             psc_result_t *result_p);
psc_status_t psc_recv_probe(psc_worker_t *worker, const psc_recv_args_t *args,
                            psc_result_t *result_p, psc_request_t **request_p);
/* Cancel a request that has not begun, or a receive whose message has not
 * reached its buffer; that message is put back. Returns PSC_ERR_INVALID if the
 * operation has gone too far, and PSC_INPROGRESS if the peer may be writing
 * into the receive's memory: the receive ends with PSC_ERR_CANCELLED when the
 * peer has answered CONCEAL (tuple_am.h). */
psc_status_t psc_recv_cancel(psc_req_t *req);
/* Put a message back to its old place among the unexpected messages, or give it
 * to a receive that waits for it. Returns PSC_ERR_NO_MEMORY if the message was
 * lost. */
psc_status_t psc_recv_put_back(psc_unexp_t *unexp);
/* The protocol that had the receive, which is in stage LANDING, gives it back,
 * and nobody writes into its memory any more: give the receive the message that
 * was put back, if there is one; otherwise end the receive. */
void psc_recv_returned(psc_req_t *req);
