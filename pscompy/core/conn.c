/* Connections: their states, their work queues, and how they end. */
#include "conn.h"

#include <stdlib.h>

#include "proto/am.h"
#include "proto/match.h"
#include "proto/proto.h"
#include "proto/credit.h"

/* ---- states ---- */

/* The one door for a connection's state. */
static void conn_state_set(psc_conn_t *conn, psc_conn_state_t state)
{
    __atomic_store_n(&conn->state, state, __ATOMIC_RELEASE);
    if (!conn->event) {
        conn->event = true;
        psc_list_push(&conn->worker->conn_events, &conn->event_link);
        psc_worker_control_signal(conn->worker);
    }
}

int psc_conn_state(const psc_conn_t *conn)
{
    return __atomic_load_n(&conn->state, __ATOMIC_ACQUIRE);
}

psc_status_t psc_conn_usable(const psc_conn_t *conn)
{
    if (conn->status != PSC_OK)
        return conn->status;
    return conn->state == PSC_CONN_LAZY ? PSC_ERR_NO_RESOURCE : PSC_OK;
}

/* ---- life ---- */

psc_conn_t *psc_conn_create(psc_worker_t *worker, uint64_t id, int rank)
{
    psc_conn_t *conn = calloc(1, sizeof *conn);

    if (!conn)
        return NULL;
    conn->worker = worker;
    conn->id = id;
    conn->rank = rank;
    psc_list_init(&conn->busy_link);
    psc_list_init(&conn->event_link);
    psc_list_init(&conn->queues);
    psc_list_init(&conn->active);
    psc_list_init(&conn->urgent);
    psc_list_init(&conn->ordered);
    psc_credit_init(conn);
    if (psc_worker_enter(worker, 0) != PSC_OK) {
        free(conn);
        return NULL;
    }
    psc_list_push(&worker->conns, &conn->link);
    psc_worker_leave(worker);
    return conn;
}

int psc_conn_connecting(psc_conn_t *conn)
{
    psc_status_t status = psc_worker_enter(conn->worker, 0);

    if (status != PSC_OK)
        return status;
    if (conn->state == PSC_CONN_LAZY)
        conn_state_set(conn, PSC_CONN_CONNECTING);
    else
        status = PSC_ERR_INVALID;
    psc_worker_leave(conn->worker);
    return status;
}

static void conn_take_params(psc_conn_t *conn, const psc_proto_params_t *params)
{
    conn->params = *params;
    if (conn->params.eager_max > PSC_EAGER_LIMIT)
        conn->params.eager_max = PSC_EAGER_LIMIT;
    if (conn->params.fragment < 4096)
        conn->params.fragment = 4096;
}

int psc_conn_install(psc_conn_t *conn, psc_lane_t **lanes, uint32_t n_lanes,
                     const psc_proto_params_t *params)
{
    psc_status_t status = psc_worker_enter(conn->worker, 0);

    if (status != PSC_OK)
        return status;
    if (n_lanes == 0 || n_lanes > PSC_LANES_MAX ||
        conn->state > PSC_CONN_CONNECTING) {
        psc_worker_leave(conn->worker);
        return PSC_ERR_INVALID;
    }
    conn_take_params(conn, params);
    conn->n_lanes = n_lanes;
    for (uint32_t i = 0; i < n_lanes; i++) {
        conn->lanes[i] = lanes[i];
        lanes[i]->index = (uint8_t)i;
        lanes[i]->conn = conn;
    }
    conn_state_set(conn, PSC_CONN_UP);
    psc_count(conn, PSC_COUNTER_connections_up, 1);
    if (lanes[0]->role != PSC_ROLE_ACCEPTOR)
        psc_count(conn, PSC_COUNTER_connections_made, 1);
    for (uint32_t i = 0; i < n_lanes && conn->state == PSC_CONN_UP; i++)
        psc_lane_replay(lanes[i]);
    psc_credit_start(conn);
    psc_conn_mark_busy(conn);
    psc_conn_flush(conn);
    psc_worker_leave(conn->worker);
    psc_wait_kick(conn->worker);
    return PSC_OK;
}

static bool conn_needed(const psc_conn_t *conn)
{
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        if (conn->lanes[i]->ep)
            return true;
    }
    return !psc_list_empty(&conn->active) || atomic_load(&conn->messages);
}

static void conn_free(psc_conn_t *conn)
{
    psc_match_conn_destroy(conn);
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        psc_list_remove(&conn->lanes[i]->event_link);
        free(conn->lanes[i]);
    }
    psc_list_remove(&conn->busy_link);
    psc_list_remove(&conn->event_link);
    psc_list_remove(&conn->link);
    free(conn);
}

void psc_conn_reap(psc_worker_t *worker)
{
    psc_list_for_each(conn, &worker->doomed, psc_conn_t, link) {
        if (!conn_needed(conn))
            conn_free(conn);
    }
}

void psc_conn_destroy_all(psc_worker_t *worker)
{
    psc_list_for_each(conn, &worker->doomed, psc_conn_t, link)
        conn_free(conn);
    psc_list_for_each(conn, &worker->conns, psc_conn_t, link)
        conn_free(conn);
}

/* Unreceived messages go at once: a lane may wait for its buffers. */
void psc_conn_destroy(psc_conn_t *conn)
{
    psc_worker_t *worker = conn->worker;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    psc_conn_fail_locked(conn, PSC_ERR_CLOSED);
    psc_am_inbox_drain(worker);
    psc_match_conn_destroy(conn);
    psc_list_remove(&conn->link);
    psc_list_push(&worker->doomed, &conn->link);
    psc_conn_reap(worker);
    psc_worker_leave(worker);
}

/* ---- work ---- */

void psc_conn_mark_busy(psc_conn_t *conn)
{
    if (psc_link_listed(&conn->busy_link))
        return;
    psc_list_push(&conn->worker->busy, &conn->busy_link);
    conn->worker->restless = true; /* nobody sleeps before a pass saw it */
}

void psc_conn_queue(psc_conn_t *conn, psc_req_t *req, bool urgent)
{
    psc_list_remove(&req->link);
    req->urgent = urgent;
    psc_list_push(urgent ? &conn->urgent : &conn->ordered, &req->link);
    psc_conn_mark_busy(conn);
}

static bool conn_send_credit(psc_conn_t *conn, psc_wire_id_t id)
{
    bool due = conn->credit_due;
    uint32_t told = conn->credit_told;
    psc_wire_credit_t wire = {.credit = psc_credit_stamp(conn)};

    if (psc_lane_send(psc_conn_main_lane(conn), id, &wire, sizeof wire, NULL,
                      0) == PSC_OK)
        return true;
    conn->credit_due = due;
    conn->credit_told = told;
    return false;
}

/* Every waiting request gets one turn, in any order. */
static bool conn_flush_urgent(psc_conn_t *conn)
{
    psc_link_t *last = conn->urgent.prev;
    bool moved = false;

    while (!psc_list_empty(&conn->urgent)) {
        psc_link_t *link = psc_list_pop(&conn->urgent);
        psc_req_t *req = psc_container_of(link, psc_req_t, link);
        uint64_t issued = req->bulk.issued;

        if (psc_proto_advance(req) == PSC_ERR_NO_RESOURCE) {
            moved |= req->bulk.issued != issued;
            psc_list_push(&conn->urgent, &req->link);
        } else {
            moved = true;
        }
        if (link == last)
            break;
    }
    return moved;
}

/* Sends leave in the order in which they were posted. */
static bool conn_flush_ordered(psc_conn_t *conn)
{
    bool moved = false;

    while (!psc_list_empty(&conn->ordered)) {
        psc_link_t *link = psc_list_pop(&conn->ordered);
        psc_req_t *req = psc_container_of(link, psc_req_t, link);

        if (psc_proto_advance(req) == PSC_ERR_NO_RESOURCE) {
            psc_list_push_front(&conn->ordered, &req->link);
            break;
        }
        moved = true;
    }
    return moved;
}

static bool conn_sends_pending(const psc_conn_t *conn)
{
    if (!psc_list_empty(&conn->urgent) || !psc_list_empty(&conn->ordered))
        return true;
    psc_list_for_each(req, (psc_list_t *)&conn->active, psc_req_t, conn_link) {
        if (req->kind == PSC_REQ_SEND)
            return true;
    }
    return false;
}

static void conn_retire_lanes(psc_conn_t *conn)
{
    for (uint32_t i = 0; i < conn->n_lanes; i++)
        psc_lane_retire(conn->lanes[i]);
}

/* The last words of a connection that ends in order. */
static void conn_flush_close(psc_conn_t *conn)
{
    if (conn->close_ack_due && conn_send_credit(conn, PSC_WIRE_CLOSE_ACK)) {
        conn->close_ack_due = false;
        if (conn->state == PSC_CONN_CLOSED)
            conn_retire_lanes(conn);
    }
    if (conn->state == PSC_CONN_CLOSING && !conn->close_sent &&
        !conn_sends_pending(conn))
        conn->close_sent = conn_send_credit(conn, PSC_WIRE_CLOSE);
}

static bool conn_idle(const psc_conn_t *conn)
{
    if (conn->state == PSC_CONN_CONNECTING || conn->state == PSC_CONN_FAILED)
        return true;
    if (conn->close_ack_due ||
        (conn->state == PSC_CONN_CLOSING && !conn->close_sent))
        return false;
    if (conn->state == PSC_CONN_CLOSED) /* it owes nothing any more */
        return true;
    return psc_list_empty(&conn->urgent) && psc_list_empty(&conn->ordered) &&
           !conn->credit_due;
}

bool psc_conn_flush(psc_conn_t *conn)
{
    bool moved = false;

    if (conn->state == PSC_CONN_UP || conn->state == PSC_CONN_CLOSING) {
        if (!psc_list_empty(&conn->urgent))
            moved |= conn_flush_urgent(conn);
        if (!psc_list_empty(&conn->ordered))
            moved |= conn_flush_ordered(conn);
        if (conn->credit_due && !psc_conn_ended(conn) &&
            conn_send_credit(conn, PSC_WIRE_CREDIT)) {
            psc_count(conn, PSC_COUNTER_credit_messages, 1);
            moved = true;
        }
    }
    if (conn->close_ack_due || conn->state == PSC_CONN_CLOSING)
        conn_flush_close(conn);
    if (conn_idle(conn))
        psc_list_remove(&conn->busy_link);
    conn->worker->restless |= moved;
    return moved;
}

/* ---- ends ---- */

/* A receive that has its message but no buffer yet keeps a whole message. */
static void conn_end_request(psc_req_t *req, psc_status_t status)
{
    psc_unexp_t *unexp = req->unexp;

    if (req->head.state != PSC_REQUEST_MATCHED) {
        psc_req_fail(req, status);
        return;
    }
    if (unexp && !unexp->rts)
        return;
    psc_list_remove(&req->conn_link);
    req->unexp = NULL;
    if (unexp)
        psc_unexp_free(unexp);
    psc_req_finish(req, status);
}

static void conn_end_receives(psc_conn_t *conn, psc_status_t status)
{
    psc_list_for_each(queue, &conn->queues, psc_match_queue_t, link) {
        psc_list_for_each(req, &queue->posted, psc_req_t, link) {
            psc_list_remove(&req->link);
            psc_req_finish(req, status);
        }
    }
    psc_list_for_each(probe, &conn->worker->probes, psc_req_t, link) {
        if (probe->source != conn)
            continue;
        psc_list_remove(&probe->link);
        psc_req_finish(probe, status);
    }
}

static void conn_end_requests(psc_conn_t *conn, psc_status_t status)
{
    conn->status = status;
    for (uint32_t i = 0; i < conn->n_lanes; i++)
        psc_proto_abort(conn->lanes[i]);
    psc_list_for_each(req, &conn->active, psc_req_t, conn_link)
        conn_end_request(req, status);
    psc_match_conn_failed(conn);
    conn_end_receives(conn, status);
}

void psc_conn_fail_locked(psc_conn_t *conn, psc_status_t status)
{
    if (psc_conn_ended(conn))
        return;
    conn_state_set(conn, status == PSC_ERR_CLOSED ? PSC_CONN_CLOSED
                                                  : PSC_CONN_FAILED);
    conn_end_requests(conn, status);
    conn_retire_lanes(conn);
    psc_list_remove(&conn->busy_link);
    psc_wait_notify(conn->worker);
}

void psc_conn_fail(psc_conn_t *conn, int status)
{
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    if (conn->state == PSC_CONN_CONNECTING && status == PSC_ERR_CONNECT) {
        /* Nothing came up, nothing was lost: the next use tries again. */
        conn_end_requests(conn, (psc_status_t)status);
        conn->status = PSC_OK;
        conn_state_set(conn, PSC_CONN_LAZY);
    } else {
        psc_conn_fail_locked(conn, (psc_status_t)status);
    }
    psc_worker_leave(conn->worker);
    psc_wait_kick(conn->worker);
}

/* How many passes the last words of a dead peer get. */
#define CONN_DRAIN_PASSES 10000

/* The link and the lane are two ways: the news may overtake what was sent. */
static bool conn_will_say(const psc_conn_t *conn)
{
    return conn->n_lanes > 0 &&
           conn->lanes[0]->slot->attr.caps & PSC_CAP_EOF;
}

int psc_conn_peer_ended(psc_conn_t *conn, int last)
{
    psc_worker_t *worker = conn->worker;
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    for (int i = 0; i < CONN_DRAIN_PASSES && !psc_conn_ended(conn); i++) {
        if (psc_worker_progress_locked(worker, true) == 0)
            break;
    }
    if (psc_conn_ended(conn))
        status = PSC_OK;
    else if (conn_will_say(conn) && !last)
        status = PSC_INPROGRESS;
    else
        psc_conn_fail_locked(conn, conn->close_sent ? PSC_ERR_CLOSED
                                                    : PSC_ERR_PEER_LOST);
    psc_worker_leave(worker);
    psc_wait_kick(worker);
    return status;
}

void psc_conn_close(psc_conn_t *conn)
{
    psc_worker_t *worker = conn->worker;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    if (conn->state == PSC_CONN_UP) {
        conn->status = PSC_ERR_CLOSED;
        conn_state_set(conn, PSC_CONN_CLOSING);
        conn_end_receives(conn, PSC_ERR_CLOSED);
        psc_conn_mark_busy(conn);
        psc_conn_flush(conn);
    } else if (conn->state != PSC_CONN_CLOSING) {
        psc_conn_fail_locked(conn, PSC_ERR_CLOSED);
    }
    psc_worker_leave(worker);
    psc_worker_wake(worker); /* a blocked send of it has to look */
}

/* The peer closes: it sends no more. Both sides may close at once; then each
 * confirms the other's and waits for its own confirmation. */
static void conn_peer_closes(psc_conn_t *conn)
{
    conn->close_received = conn->close_ack_due = true;
    psc_conn_mark_busy(conn);
    if (conn->state == PSC_CONN_CLOSING && conn->close_sent)
        return;
    conn_end_requests(conn, PSC_ERR_CLOSED);
    conn_state_set(conn, PSC_CONN_CLOSED);
    psc_wait_notify(conn->worker);
}

void psc_conn_close_received(psc_conn_t *conn, bool is_ack)
{
    if (psc_conn_ended(conn))
        return;
    if (!is_ack) {
        conn_peer_closes(conn);
    } else if (conn->close_ack_due) {
        conn_end_requests(conn, PSC_ERR_CLOSED);
        conn_state_set(conn, PSC_CONN_CLOSED);
    } else {
        psc_conn_fail_locked(conn, PSC_ERR_CLOSED);
    }
}
