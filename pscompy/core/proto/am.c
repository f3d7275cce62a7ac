#include "am.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am_node.h"
#include "credit.h"

typedef struct am_handler {
    psc_link_t link;
    uint32_t id;
    psc_am_handler_t func; /* NULL: queue for message_poll */
    void *arg;
} am_handler_t;

/* A message that was announced and waits until there is room for it. */
typedef struct am_offer {
    psc_link_t link;
    psc_offer_t offer;
    uint16_t header_len;
    uint8_t keys[];
} am_offer_t;

static am_handler_t *am_find(psc_worker_t *worker, uint32_t id)
{
    psc_list_t *bucket = &worker->handlers[id % PSC_HANDLER_BUCKETS];

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
        psc_list_push(&worker->handlers[id % PSC_HANDLER_BUCKETS],
                      &handler->link);
    }
    handler->func = func;
    handler->arg = arg;
    return PSC_OK;
}

/* ---- arriving ---- */

/* For one that arrives. With the worker's lock. */
static am_node_t *am_node_create(psc_conn_t *conn, uint32_t id,
                                 size_t header_len, uint64_t len)
{
    psc_worker_t *worker = conn->worker;
    am_node_t *node = psc_am_node_fill(psc_am_node_reuse(worker, len), conn, id,
                                   header_len, len);

    if (!node)
        return NULL;
    node->kept = len + PSC_CREDIT_OVERHEAD;
    worker->unexpected += node->kept;
    worker->unpolled += node->kept;
    return node;
}

/* It counts no more. */
static void am_node_release(psc_worker_t *worker, am_node_t *node)
{
    worker->unexpected -= node->kept;
    worker->unpolled -= node->kept;
    if (node->owed)
        psc_credit_return(node->conn, node->owed);
    node->kept = node->owed = 0;
}

static void am_node_drop(psc_worker_t *worker, am_node_t *node)
{
    am_node_release(worker, node);
    psc_am_node_free(worker, node);
}

/* Hand it to its handler. True: it stays in the queue. */
static bool am_hand_over(psc_conn_t *conn, am_node_t *node)
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
    psc_list_push(&worker->messages, &node->link);
    atomic_fetch_add(&worker->n_messages, 1);
    psc_wake(worker, PSC_WAKE_NEWS);
    return true;
}

/* The credit of one that came eagerly: at once, if it is gone already or there
 * is room. */
static void am_taken(psc_conn_t *conn, am_node_t *node, bool queued,
                     uint32_t cost)
{
    psc_worker_t *worker = conn->worker;

    if (queued && worker->unexpected > worker->config.unexpected_max) {
        node->owed = cost;
        psc_count(conn, PSC_COUNTER_credits_withheld, 1);
        return;
    }
    psc_credit_return(conn, cost);
    if (!queued)
        am_node_drop(worker, node);
}

psc_status_t psc_am_deliver(psc_conn_t *conn, uint32_t id, uint16_t header_len,
                            const void *data, uint64_t len)
{
    am_node_t *node;

    if (header_len > len)
        return PSC_ERR_PROTOCOL;
    node = am_node_create(conn, id, header_len, len);
    if (!node)
        return PSC_ERR_NO_MEMORY;
    if (len)
        memcpy(node->data, data, len);
    am_taken(conn, node, am_hand_over(conn, node), psc_credit_cost(len));
    return PSC_OK;
}

psc_status_t psc_am_begin(psc_lane_t *lane, uint32_t id, uint16_t header_len,
                          uint64_t len, psc_dest_t *dest)
{
    psc_incoming_t *in = &lane->incoming;
    am_node_t *node;

    if (header_len > len)
        return PSC_ERR_PROTOCOL;
    node = am_node_create(lane->conn, id, header_len, len);
    if (!node)
        return PSC_ERR_NO_MEMORY;
    in->message = &node->message;
    in->iov[0] = (psc_iov_t){node->data, len};
    dest->iov = in->iov;
    dest->n_iov = 1;
    return PSC_OK;
}

void psc_am_end(psc_lane_t *lane)
{
    psc_message_t *message = lane->incoming.message;
    am_node_t *node = psc_container_of(message, am_node_t, message);

    am_taken(lane->conn, node, am_hand_over(lane->conn, node),
             psc_credit_cost(lane->incoming.len));
}

void psc_am_abort(psc_lane_t *lane)
{
    psc_message_t *message = lane->incoming.message;

    am_node_drop(lane->worker, psc_container_of(message, am_node_t, message));
}

/* ---- announced ---- */

static bool am_offers_start(psc_worker_t *worker);

static void am_fetched(psc_req_t *req)
{
    psc_worker_t *worker = req->worker;
    am_node_t *node = req->payload;

    req->conn->rts_in--;
    if (req->head.result.status != PSC_OK || !am_hand_over(req->conn, node))
        am_node_drop(worker, node);
    am_offers_start(worker);
}

static void am_refused(psc_req_t *req)
{
    req->conn->rts_in--;
}

/* There is no memory for it: its sender is told, the connection goes on. */
static void am_refuse(psc_req_t *req, const psc_offer_t *offer)
{
    char line[PSC_REASON_MAX];

    snprintf(line, sizeof line,
             "an active message of %" PRIu64 " bytes is refused: there is no "
             "memory for it", offer->len);
    psc_worker_log(req->worker, 1, line);
    req->on_done = am_refused;
    req->error = PSC_ERR_NO_MEMORY;
    req->bulk.remote_id = offer->send_id;
    psc_req_attach(req, offer->conn);
    psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
    psc_conn_queue(offer->conn, req, true);
}

static psc_status_t am_fetch(const psc_offer_t *offer, uint16_t header_len)
{
    psc_req_t *req = psc_req_create(offer->conn->worker, PSC_REQ_RECV);
    am_node_t *node;

    if (!req)
        return PSC_ERR_NO_MEMORY;
    node = am_node_create(offer->conn, (uint32_t)offer->tag, header_len,
                          offer->len);
    if (!node) {
        am_refuse(req, offer);
        return PSC_OK;
    }
    psc_req_set_iov(req, &(psc_iov_t){node->data, offer->len}, 1);
    req->payload = node;
    req->on_done = am_fetched;
    psc_rndv_recv_start(req, offer);
    return PSC_OK;
}

/* One alone may be longer than all of the bound. */
static bool am_has_room(const psc_worker_t *worker, uint64_t len)
{
    uint64_t max = worker->config.unexpected_max;

    return worker->unpolled == 0 ||
           (worker->unexpected <= max && len <= max - worker->unexpected);
}

/* Fetch what has waited. True: something has begun. */
static bool am_offers_start(psc_worker_t *worker)
{
    bool started = false;

    while (!psc_list_empty(&worker->offers)) {
        am_offer_t *waiting =
            psc_container_of(worker->offers.next, am_offer_t, link);

        if (!am_has_room(worker, waiting->offer.len))
            break;
        psc_list_remove(&waiting->link);
        if (am_fetch(&waiting->offer, waiting->header_len) != PSC_OK) {
            psc_list_push_front(&worker->offers, &waiting->link);
            break;
        }
        free(waiting);
        started = true;
    }
    return started;
}

static psc_status_t am_offer_keep(const psc_offer_t *offer, uint16_t header_len)
{
    am_offer_t *waiting = malloc(sizeof *waiting + offer->keys_len);

    if (!waiting)
        return PSC_ERR_NO_MEMORY;
    waiting->offer = *offer;
    waiting->offer.keys = waiting->keys;
    waiting->header_len = header_len;
    if (offer->keys_len)
        memcpy(waiting->keys, offer->keys, offer->keys_len);
    psc_list_push(&offer->conn->worker->offers, &waiting->link);
    return PSC_OK;
}

psc_status_t psc_am_announced(psc_conn_t *conn, uint16_t header_len,
                              const psc_offer_t *offer)
{
    psc_worker_t *worker = conn->worker;
    psc_status_t status;

    if (header_len > offer->len || conn->rts_in >= PSC_RTS_LIMIT)
        return PSC_ERR_PROTOCOL;
    if (psc_list_empty(&worker->offers) && am_has_room(worker, offer->len))
        status = am_fetch(offer, header_len);
    else
        status = am_offer_keep(offer, header_len);
    if (status == PSC_OK)
        conn->rts_in++;
    return status;
}

static void am_offers_end(psc_worker_t *worker, const psc_conn_t *conn)
{
    psc_list_for_each(waiting, &worker->offers, am_offer_t, link) {
        if (conn && waiting->offer.conn != conn)
            continue;
        waiting->offer.conn->rts_in--;
        psc_list_remove(&waiting->link);
        free(waiting);
    }
}

void psc_am_conn_ended(psc_conn_t *conn)
{
    am_offers_end(conn->worker, conn);
}

/* ---- polling ---- */

/* Return the credit, and admit the announced messages, that were held
 * back while this message took the room. */
static void am_polled(psc_worker_t *worker, am_node_t *node)
{
    bool owed = node->owed > 0;

    am_node_release(worker, node);
    if (!am_offers_start(worker) && !owed)
        return;
    psc_list_for_each(conn, &worker->busy, psc_conn_t, busy_link)
        psc_conn_flush(conn);
}

psc_message_t *psc_am_poll(psc_worker_t *worker)
{
    psc_link_t *link = psc_list_pop(&worker->messages);
    am_node_t *node;

    if (!link)
        return NULL;
    atomic_fetch_sub(&worker->n_messages, 1);
    node = psc_container_of(link, am_node_t, link);
    am_polled(worker, node);
    return &node->message;
}

void psc_am_message_free(psc_message_t *message)
{
    am_node_t *node = psc_container_of(message, am_node_t, message);

    atomic_fetch_sub(&node->conn->messages, 1);
    psc_am_node_free(node->conn->worker, node);
}

/* ---- the worker's end ---- */

void psc_am_worker_destroy(psc_worker_t *worker)
{
    am_node_t *node = atomic_exchange(&worker->inbox, NULL), *next;
    psc_message_t *message;

    am_offers_end(worker, NULL);
    for (; node; node = next) {
        next = node->next;
        free(node);
    }
    while ((message = psc_am_poll(worker)))
        psc_am_message_free(message);
    psc_am_nodes_destroy(worker);
    for (int i = 0; i < PSC_HANDLER_BUCKETS; i++) {
        psc_list_for_each(handler, &worker->handlers[i], am_handler_t, link)
            free(handler);
    }
}
