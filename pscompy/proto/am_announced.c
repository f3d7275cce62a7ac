#include "am_announced.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/conn_flush.h"
#include "../core/conn_queue.h"
#include "../core/lane_upcalls.h"
#include "../core/request.h"
#include "am.h"
#include "am_node.h"
#include "rndv.h"
#include "rndv_fin.h"

/* A message that was announced by RTS and is not fetched yet. */
typedef struct am_announced {
    psc_link_t link;
    psc_announcement_t announcement;
    uint16_t header_len;
    uint8_t keys[];
} am_announcement_t;

static bool am_announced_start(psc_worker_t *worker);

/* ---- fetching ---- */

static void am_fetched(psc_req_t *req)
{
    psc_worker_t *worker = psc_req_worker(req);
    am_node_t *node = req->bulk->payload;

    psc_req_conn(req)->rts_in--;
    if (req->head.result.status != PSC_OK ||
        !psc_am_hand_over(psc_req_conn(req), node))
        psc_am_node_drop(worker, node);
    am_announced_start(worker);
}

static void am_refused(psc_req_t *req)
{
    psc_req_conn(req)->rts_in--;
}

/* Refuse a message because memory is short: the sender gets the error in a FIN,
 * and the connection stays up. */
static void am_refuse(psc_req_t *req, const psc_announcement_t *announcement)
{
    char line[PSC_REASON_MAX];

    snprintf(line, sizeof line,
             "an active message of %" PRIu64 " bytes is refused: there is no "
             "memory for it",
             announcement->len);
    psc_control_events_log(&psc_req_worker(req)->control_events, 1, line);
    req->bulk->on_done = am_refused;
    req->error = PSC_ERR_NO_MEMORY;
    req->bulk->remote_id = announcement->send_id;
    psc_req_attach(req, announcement->conn);
    psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
    psc_conn_queue(announcement->conn, req);
}

static psc_status_t am_fetch(const psc_announcement_t *announcement,
                             uint16_t header_len)
{
    psc_req_t *req = psc_req_create_bulk(&announcement->conn->worker->requests,
                                         PSC_REQ_RECV);
    am_node_t *node;

    if (!req)
        return PSC_ERR_NO_MEMORY;
    node = psc_am_node_create(announcement->conn, (uint32_t)announcement->tag,
                              header_len, announcement->len);
    if (!node) {
        am_refuse(req, announcement);
        return PSC_OK;
    }
    psc_req_set_iov(req, &(psc_iov_t){node->data, announcement->len}, 1);
    req->bulk->payload = node;
    req->bulk->on_done = am_fetched;
    return psc_rndv_recv_start(req, announcement);
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

/* Fetch announced messages that have waited, as long as there is room
 * (am_fits_budget). Without memory for the fetch of a message its connection
 * ends, because the sender would wait forever. Returns true if a fetch was
 * started. */
static bool am_announced_start(psc_worker_t *worker)
{
    bool started = false;

    while (!psc_list_empty(&worker->am.announced)) {
        am_announcement_t *waiting = psc_container_of(worker->am.announced.next,
                                                      am_announcement_t, link);
        psc_status_t status;

        if (!am_fits_budget(worker, waiting->announcement.len))
            break;
        psc_list_remove(&waiting->link);
        status = am_fetch(&waiting->announcement, waiting->header_len);
        if (status == PSC_OK)
            started = true;
        else
            psc_lane_break(psc_conn_main_lane(waiting->announcement.conn),
                           status);
        free(waiting);
    }
    return started;
}

static psc_status_t am_announced_keep(const psc_announcement_t *announcement,
                                      uint16_t header_len)
{
    am_announcement_t *waiting =
        malloc(sizeof *waiting + announcement->keys_len);

    if (!waiting)
        return PSC_ERR_NO_MEMORY;
    waiting->announcement = *announcement;
    waiting->announcement.keys = waiting->keys;
    waiting->header_len = header_len;
    if (announcement->keys_len)
        memcpy(waiting->keys, announcement->keys, announcement->keys_len);
    psc_list_push(&announcement->conn->worker->am.announced, &waiting->link);
    return PSC_OK;
}

psc_status_t psc_am_announced(psc_conn_t *conn, uint16_t header_len,
                              const psc_announcement_t *announcement)
{
    psc_worker_t *worker = conn->worker;
    psc_status_t status;

    if (header_len > announcement->len || conn->rts_in >= PSC_RTS_LIMIT)
        return PSC_ERR_PROTOCOL;
    if (psc_list_empty(&worker->am.announced) &&
        am_fits_budget(worker, announcement->len))
        status = am_fetch(announcement, header_len);
    else
        status = am_announced_keep(announcement, header_len);
    if (status == PSC_OK)
        conn->rts_in++;
    return status;
}

static void am_offer_free(am_announcement_t *waiting)
{
    waiting->announcement.conn->rts_in--;
    psc_list_remove(&waiting->link);
    free(waiting);
}

bool psc_am_offer_refuse(psc_conn_t *conn)
{
    psc_list_for_each(waiting, &conn->worker->am.announced, am_announcement_t,
                      link) {
        if (waiting->announcement.conn != conn)
            continue;
        if (psc_rndv_fin(conn, PSC_ERR_CLOSED, &waiting->announcement.send_id,
                         1) != PSC_OK)
            return false;
        am_offer_free(waiting);
        return true;
    }
    return false;
}

uint64_t psc_am_offers_bytes(const psc_worker_t *worker)
{
    uint64_t bytes = 0;

    psc_list_for_each(waiting, &worker->am.announced, am_announcement_t, link)
        bytes += sizeof *waiting + waiting->announcement.keys_len;
    return bytes;
}

/* ---- polling ---- */

/* A message was polled: return its credit, if that was withheld, and fetch
 * announced messages for which there is room now. */
static void am_polled(psc_worker_t *worker, am_node_t *node)
{
    bool owed = node->owed > 0;

    psc_am_node_release(worker, node);
    if (!am_announced_start(worker) && !owed)
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

/* ---- the end of a connection or worker ---- */

static void am_announced_end(psc_worker_t *worker, const psc_conn_t *conn)
{
    psc_list_for_each(waiting, &worker->am.announced, am_announcement_t, link) {
        if (!conn || waiting->announcement.conn == conn)
            am_offer_free(waiting);
    }
}

void psc_am_conn_ended(psc_conn_t *conn)
{
    am_announced_end(conn->worker, conn);
}

void psc_am_worker_destroy(psc_worker_t *worker)
{
    am_node_t *node = atomic_exchange(&worker->am.inbox, NULL), *next;
    psc_message_t *message;

    am_announced_end(worker, NULL);
    for (; node; node = next) {
        next = node->next;
        free(node);
    }
    while ((message = psc_am_poll(worker)))
        psc_am_message_free(message);
    psc_am_idle_destroy(&worker->am.idle);
    psc_am_handlers_destroy(worker);
}
