#include "message.h"

#include "../core/conn.h"
#include "../core/finish.h"
#include "../core/upward.h"
#include "credit.h"
#include "eager.h"
#include "protocol.h"

static bool send_may(const psc_proto_t *proto, const psc_req_t *req)
{
    if (req->head.flags & PSC_FLAGS_ANNOUNCED && !proto->announces)
        return false;
    return proto->may && proto->may(req);
}

psc_status_t psc_send_progress(psc_req_t *req)
{
    psc_status_t status = PSC_ERR_UNSUPPORTED;

    if (psc_req_conn(req)->state == PSC_CONN_CONNECTING)
        return PSC_ERR_NO_RESOURCE;
    for (const psc_proto_t *const *at = psc_req_worker(req)->protocols;
         *at && status == PSC_ERR_UNSUPPORTED; at++) {
        if (send_may(*at, req))
            status = (*at)->start(req);
    }
    return status;
}

bool psc_send_reads_first(const psc_conn_t *conn, const psc_send_args_t *args)
{
    uint64_t len = psc_iov_total(args->iov, args->n_iov);

    if (conn->state != PSC_CONN_UP)
        return false;
    if (!psc_eager_fits(conn, len))
        return conn->looks_first;
    return !psc_flow_has(&conn->flow, psc_credit_cost(len));
}

psc_status_t psc_send_now(psc_conn_t *conn, const psc_send_args_t *args,
                          uint16_t aux)
{
    psc_message_head_t head = {args->context, args->tag, aux};
    uint64_t len = psc_iov_total(args->iov, args->n_iov);

    if (conn->state != PSC_CONN_UP || args->flags & PSC_FLAGS_ANNOUNCED ||
        !psc_list_empty(&conn->work.queues[PSC_WORK_ORDERED]) ||
        !psc_eager_fits(conn, len) || len >= conn->params.zcopy_min ||
        !psc_flow_has(&conn->flow, psc_credit_cost(len)))
        return PSC_ERR_NO_RESOURCE;
    if (__builtin_expect(psc_tag_carries(conn, args->context), 0))
        return conn->hands_out->send_now(conn, &head, args->iov, args->n_iov,
                                         len);
    return psc_eager_send(conn, &head, args->iov, args->n_iov, len, NULL);
}

/* Begin a send. A request whose message was sent at once is recycled, and wakes
 * no sleeping threads, because the consumer does not have the request yet. */
static psc_status_t send_start(psc_req_t *req, psc_request_t **request_p)
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

psc_status_t psc_send(psc_conn_t *conn, const psc_send_args_t *args,
                      uint16_t aux, psc_request_t **request_p)
{
    psc_status_t status = psc_conn_usable(conn);
    psc_req_t *req;

    if (status != PSC_OK)
        return status;
    if (psc_send_now(conn, args, aux) == PSC_OK)
        return PSC_OK;
    status = psc_message_request(conn->worker, PSC_REQ_SEND,
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
    return send_start(req, request_p);
}
