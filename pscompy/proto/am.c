#include "am.h"

#include <stdlib.h>
#include <string.h>

#include "../core/progress/progress.h"
#include "credit.h"

typedef struct am_handler {
    psc_link_t link;
    uint32_t id;
    psc_am_handler_t func; /* NULL: queue the message for psc_am_poll */
    void *arg;
} am_handler_t;

void psc_am_begin(psc_worker_t *worker)
{
    psc_am_state_t *am = &worker->am;

    for (int i = 0; i < PSC_HANDLER_BUCKETS; i++)
        psc_list_init(&am->handlers[i]);
    psc_list_init(&am->queued);
}

static am_handler_t *am_find(psc_worker_t *worker, uint32_t id)
{
    psc_list_t *bucket = &worker->am.handlers[id % PSC_HANDLER_BUCKETS];

    psc_list_for_each(handler, bucket, am_handler_t, link) {
        if (handler->id == id)
            return handler;
    }
    return NULL;
}

psc_status_t psc_am_set_handler(psc_worker_t *worker, uint32_t id,
                                psc_am_handler_t func, void *arg)
{
    am_handler_t *handler = am_find(worker, id);

    if (handler && !func && !arg) {
        psc_list_remove(&handler->link);
        free(handler);
        return PSC_OK;
    }
    if (!handler) {
        if (!func && !arg)
            return PSC_OK;
        handler = malloc(sizeof *handler);
        if (!handler)
            return PSC_ERR_NO_MEMORY;
        handler->id = id;
        psc_list_push(&worker->am.handlers[id % PSC_HANDLER_BUCKETS],
                      &handler->link);
    }
    handler->func = func;
    handler->arg = arg;
    return PSC_OK;
}

/* ---- arriving ---- */

am_node_t *psc_am_node_create(psc_conn_t *conn, uint32_t id, size_t header_len,
                              uint64_t len)
{
    psc_worker_t *worker = conn->worker;
    am_node_t *node = psc_am_node_fill(psc_am_node_reuse(&worker->am.idle, len),
                                       conn, id, header_len, len);

    if (!node)
        return NULL;
    node->kept = len + PSC_CREDIT_OVERHEAD;
    worker->budget.kept += node->kept;
    worker->am.unpolled += node->kept;
    return node;
}

void psc_am_node_release(psc_worker_t *worker, am_node_t *node)
{
    worker->budget.kept -= node->kept;
    worker->am.unpolled -= node->kept;
    if (node->owed)
        psc_credit_return(node->conn, node->owed);
    node->kept = node->owed = 0;
}

void psc_am_node_drop(psc_worker_t *worker, am_node_t *node)
{
    psc_am_node_release(worker, node);
    psc_am_node_free(&worker->am.idle, node);
}

bool psc_am_hand_over(psc_conn_t *conn, am_node_t *node)
{
    psc_worker_t *worker = conn->worker;
    am_handler_t *handler = am_find(worker, node->message.id);

    if (!handler) {
        psc_count(conn, PSC_COUNTER_am_dropped, 1);
        return false;
    }
    psc_count(conn, PSC_COUNTER_am_received, 1);
    if (handler->func) {
        handler->func(handler->arg, &node->message);
        return false;
    }
    atomic_fetch_add(&conn->messages, 1);
    psc_list_push(&worker->am.queued, &node->link);
    atomic_fetch_add(&worker->am.n_queued, 1);
    psc_wake(worker, PSC_WAKE_EVENT);
    return true;
}

/* Return the credit of an eager message now if the message was not queued, or
 * if the bound on unexpected messages allows it. Otherwise the credit is
 * returned when the message is polled. */
static void am_taken(psc_conn_t *conn, am_node_t *node, bool queued,
                     uint32_t cost)
{
    psc_worker_t *worker = conn->worker;

    if (queued && !psc_budget_left(&worker->budget)) {
        node->owed = cost;
        psc_count(conn, PSC_COUNTER_credits_withheld, 1);
        return;
    }
    psc_credit_return(conn, cost);
    if (!queued)
        psc_am_node_drop(worker, node);
}

psc_status_t psc_am_deliver(psc_conn_t *conn, const psc_message_head_t *head,
                            const void *data, uint64_t len)
{
    am_node_t *node;

    if (head->aux > len)
        return PSC_ERR_PROTOCOL;
    node = psc_am_node_create(conn, (uint32_t)head->tag, head->aux, len);
    if (!node)
        return PSC_ERR_NO_MEMORY;
    if (len)
        memcpy(node->data, data, len);
    am_taken(conn, node, psc_am_hand_over(conn, node), psc_credit_cost(len));
    return PSC_OK;
}

psc_status_t psc_am_begin_payload(psc_lane_t *lane,
                                  const psc_message_head_t *head, uint64_t len,
                                  psc_dest_t *dest)
{
    psc_incoming_t *in = &lane->incoming;
    am_node_t *node;

    if (head->aux > len)
        return PSC_ERR_PROTOCOL;
    node = psc_am_node_create(lane->conn, (uint32_t)head->tag, head->aux, len);
    if (!node)
        return PSC_ERR_NO_MEMORY;
    in->kind = PSC_INCOMING_MESSAGE;
    in->message = &node->message;
    in->iov[0] = (psc_iov_t){node->data, len};
    dest->iov = in->iov;
    dest->n_iov = 1;
    return PSC_OK;
}

void psc_am_end_payload(psc_lane_t *lane)
{
    psc_message_t *message = lane->incoming.message;
    am_node_t *node = psc_container_of(message, am_node_t, message);

    am_taken(lane->conn, node, psc_am_hand_over(lane->conn, node),
             psc_credit_cost(lane->incoming.len));
}

void psc_am_lane_ended(psc_lane_t *lane)
{
    if (lane->incoming.kind == PSC_INCOMING_MESSAGE)
        psc_am_node_drop(lane->worker, psc_container_of(lane->incoming.message,
                                                        am_node_t, message));
}

/* ---- the end of a worker ---- */

void psc_am_handlers_destroy(psc_worker_t *worker)
{
    for (int i = 0; i < PSC_HANDLER_BUCKETS; i++) {
        psc_list_for_each(handler, &worker->am.handlers[i], am_handler_t, link)
            free(handler);
    }
}
