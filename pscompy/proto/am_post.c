/* Active messages from handlers and other threads. They are posted without the
 * worker's lock, and sent by the thread that holds the lock next. */
#include "am.h"

#include <stdlib.h>
#include <string.h>

#include "../core/finish.h"
#include "../core/worker.h"
#include "message.h"

static void am_posted(psc_req_t *req)
{
    psc_am_node_free(&psc_req_worker(req)->am.idle, req->bulk->payload);
}

/* Send the message of a node, with the lock held. The node is freed when the
 * message's request is done. */
static psc_status_t am_node_send(am_node_t *node)
{
    size_t len = node->message.header_len + node->message.len;
    psc_iov_t iov = {node->data, len};
    psc_send_args_t args = {.context = PSC_CONTEXT_AM,
                            .tag = (int32_t)node->message.id,
                            .iov = &iov,
                            .n_iov = 1};
    psc_request_t *request = NULL;
    psc_status_t status = psc_send(
        node->conn, &args, (uint16_t)node->message.header_len, &request);

    if (status != PSC_INPROGRESS) {
        psc_am_node_free(&node->conn->worker->am.idle, node);
        return status;
    }
    psc_req_t *req = psc_container_of(request, psc_req_t, head);
    if (req->stage == PSC_STAGE_DONE) { /* it has failed at once */
        status = req->head.result.status;
        psc_req_release(req);
        psc_am_node_free(&node->conn->worker->am.idle, node);
        return status;
    }
    req->bulk->payload = node;
    req->bulk->on_done = am_posted;
    return PSC_OK;
}

psc_status_t psc_am_post(psc_conn_t *conn, uint32_t id, const void *header,
                         size_t header_len, const void *payload, size_t len)
{
    psc_worker_t *worker = conn->worker;
    am_node_t *node;

    if (header_len > PSC_AM_USER_HEADER_MAX || id > PSC_TAG_MAX)
        return PSC_ERR_INVALID;
    if (psc_conn_state(conn) == PSC_CONN_LAZY)
        /* the program must connect first, as for am_send */
        return PSC_ERR_NO_RESOURCE;
    if (psc_conn_state(conn) > PSC_CONN_UP)
        return PSC_ERR_CLOSED;
    node = psc_am_node_fill(psc_am_node_alloc(header_len + len), conn, id,
                            header_len, header_len + len);
    if (!node)
        return PSC_ERR_NO_MEMORY;
    if (header_len)
        memcpy(node->data, header, header_len);
    if (len)
        memcpy(node->data + header_len, payload, len);
    node->next = atomic_load(&worker->am.inbox);
    while (!atomic_compare_exchange_weak(&worker->am.inbox, &node->next, node))
        ;
    psc_worker_mail(worker);
    return PSC_OK;
}

/* Send the messages that am_post has queued. */
static void am_inbox_drain(psc_worker_t *worker)
{
    am_node_t *node = atomic_exchange(&worker->am.inbox, NULL), *first = NULL;

    /* the newest message is first in the inbox: reverse the order */
    while (node) {
        am_node_t *next = node->next;

        node->next = first;
        first = node;
        node = next;
    }
    while (first) {
        am_node_t *next = first->next;
        psc_conn_t *conn = first->conn;

        psc_count(conn,
                  am_node_send(first) == PSC_OK ? PSC_COUNTER_am_sent
                                                : PSC_COUNTER_am_unsent,
                  1);
        first = next;
    }
}

const psc_proto_t psc_am = {
    .name = "active message",
    .deliver = psc_am_deliver,
    .begin_payload = psc_am_begin_payload,
    .end_payload = psc_am_end_payload,
    .keep = psc_am_announced,
    .lane_ended = psc_am_lane_ended,
    .worker_begin = psc_am_begin,
    .drain = am_inbox_drain,
    .worker_destroyed = psc_am_worker_destroy,
};
