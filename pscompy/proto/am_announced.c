#include "am.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/conn.h"
#include "../core/lane.h"
#include "../core/request.h"
#include "rndv.h"

static bool am_fetch_all(psc_worker_t *worker);

/* ---- fetching ---- */

static void am_fetched(psc_req_t *req)
{
    psc_worker_t *worker = psc_req_worker(req);
    am_node_t *node = req->bulk->payload;

    if (req->head.result.status != PSC_OK ||
        !psc_am_hand_over(psc_req_conn(req), node))
        psc_am_node_drop(worker, node);
    am_fetch_all(worker);
}

/* Refuse a message because memory is short: the sender gets the error in a FIN,
 * and the connection stays up. */
static void am_refuse(psc_req_t *req, psc_unexp_t *unexp)
{
    char line[PSC_REASON_MAX];

    snprintf(line, sizeof line,
             "an active message of %" PRIu64 " bytes is refused: there is no "
             "memory for it",
             unexp->len);
    psc_control_events_log(&unexp->conn->worker->control_events, 1, line);
    psc_unexp_refuse(req, unexp, PSC_ERR_NO_MEMORY);
}

/* Post the receive of an announced message. */
static psc_status_t am_fetch(psc_unexp_t *unexp)
{
    psc_conn_t *conn = unexp->conn;
    psc_req_t *req = psc_req_create_bulk(&conn->worker->requests, PSC_REQ_RECV);
    am_node_t *node;

    if (!req)
        return PSC_ERR_NO_MEMORY;
    node =
        psc_am_node_create(conn, (uint32_t)unexp->tag, unexp->aux, unexp->len);
    if (!node) {
        am_refuse(req, unexp);
        return PSC_OK;
    }
    psc_req_set_iov(req, &(psc_iov_t){node->data, unexp->len}, 1);
    req->bulk->payload = node;
    req->bulk->on_done = am_fetched;
    psc_unexp_take(unexp);
    psc_rndv_recv_unexpected(req, unexp);
    return PSC_OK;
}

/* ---- waiting for room ---- */

/* Returns true if a message of `len` bytes fits under the bound on unpolled and
 * unexpected messages (psc_budget_t). A message may exceed the bound if all
 * others have been polled. */
static bool am_fits_budget(const psc_worker_t *worker, uint64_t len)
{
    const psc_budget_t *budget = &worker->budget;

    return worker->am.unpolled == 0 ||
           (psc_budget_left(budget) && len <= budget->max - budget->kept);
}

/* Returns the announced message whose turn it is, or NULL if there is none or
 * no room for it. */
static psc_unexp_t *am_next(psc_worker_t *worker)
{
    psc_context_t *context = psc_match_context(worker, PSC_CONTEXT_AM, false);

    if (!context)
        return NULL;
    psc_list_for_each(unexp, &context->lists.unexpected.all, psc_unexp_t,
                      any_link) {
        if (unexp->conn->status == PSC_OK)
            return am_fits_budget(worker, unexp->len) ? unexp : NULL;
    }
    return NULL;
}

/* Fetch announced messages as long as there is room for them. Without memory
 * for the fetch of a message its connection ends, because the sender would wait
 * forever. Returns true if a fetch was started, or a message refused. */
static bool am_fetch_all(psc_worker_t *worker)
{
    bool started = false;
    psc_unexp_t *unexp;

    while ((unexp = am_next(worker))) {
        psc_lane_t *lane = psc_conn_main_lane(unexp->conn);

        if (am_fetch(unexp) == PSC_OK) {
            started = true;
            continue;
        }
        psc_unexp_free(unexp);
        psc_lane_break(lane, PSC_ERR_NO_MEMORY);
    }
    return started;
}

psc_status_t psc_am_announced(psc_unexp_t *unexp)
{
    psc_worker_t *worker = unexp->conn->worker;
    psc_status_t status;

    unexp->aux = (uint16_t)(unexp->context & PSC_WIRE_AUX);
    unexp->context = PSC_CONTEXT_AM;
    unexp->order = ++worker->matching.clock;
    if (unexp->aux > unexp->len) {
        psc_unexp_free(unexp);
        return PSC_ERR_PROTOCOL;
    }
    status = psc_match_put_back(unexp);
    if (status != PSC_OK)
        return status;
    am_fetch_all(worker);
    return PSC_OK;
}

/* ---- polling ---- */

/* A message was polled: return its credit, if that was withheld, and fetch
 * announced messages for which there is room now. */
static void am_polled(psc_worker_t *worker, am_node_t *node)
{
    bool owed = node->owed > 0;

    psc_am_node_release(worker, node);
    if (!am_fetch_all(worker) && !owed)
        return;
    psc_conns_flush(worker);
}

psc_message_t *psc_am_poll(psc_worker_t *worker)
{
    psc_link_t *link = psc_list_pop(&worker->am.queued);
    am_node_t *node;

    if (!link)
        return NULL;
    atomic_fetch_sub(&worker->am.n_queued, 1);
    node = psc_container_of(link, am_node_t, link);
    am_polled(worker, node);
    return &node->message;
}

void psc_am_message_free(psc_message_t *message)
{
    am_node_t *node = psc_container_of(message, am_node_t, message);

    atomic_fetch_sub(&node->conn->messages, 1);
    psc_am_node_free(&node->conn->worker->am.idle, node);
}

/* ---- the end of a worker ---- */

void psc_am_worker_destroy(psc_worker_t *worker)
{
    am_node_t *node = atomic_exchange(&worker->am.inbox, NULL), *next;
    psc_message_t *message;

    for (; node; node = next) {
        next = node->next;
        free(node);
    }
    while ((message = psc_am_poll(worker)))
        psc_am_message_free(message);
    psc_am_idle_destroy(&worker->am.idle);
    psc_am_handlers_destroy(worker);
}
