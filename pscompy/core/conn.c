/* Connections: their states, their life, and how they end. */
#include "conn.h"

#include <stdlib.h>
#include <string.h>

#include "upward.h"

/* ---- states ---- */

/* The more peers may send unasked, the less each: together no more than is
 * kept for those who have come too early. */
static void conn_share_window(psc_worker_t *worker, int change)
{
    uint64_t share = worker->config.unexpected_max;

    worker->n_up += (uint32_t)change;
    if (worker->n_up > 1)
        share /= worker->n_up;
    worker->window = share < worker->config.eager_window
                         ? share
                         : worker->config.eager_window;
}

/* The one door for a connection's state. */
static void conn_state_set(psc_conn_t *conn, psc_conn_state_t state)
{
    conn_share_window(conn->worker, (state == PSC_CONN_UP) -
                                        (conn->state == PSC_CONN_UP));
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
    conn->counters = &worker->nobodys;
    psc_list_init(&conn->busy_link);
    psc_list_init(&conn->event_link);
    psc_list_init(&conn->queues);
    psc_list_init(&conn->active);
    psc_list_init(&conn->urgent);
    psc_list_init(&conn->ordered);
    psc_list_init(&conn->fins);
    psc_proto_conn_init(conn);
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

/* What is only declared needs none, and there may be very many of these. */
static bool conn_counters_make(psc_conn_t *conn)
{
    psc_counters_t *counters = calloc(1, sizeof *counters);

    if (counters)
        conn->counters = counters;
    return counters != NULL;
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
    if (!conn_counters_make(conn)) {
        psc_worker_leave(conn->worker);
        return PSC_ERR_NO_MEMORY;
    }
    psc_proto_conn_params(conn, params);
    conn->n_lanes = n_lanes;
    for (uint32_t i = 0; i < n_lanes; i++) {
        conn->lanes[i] = lanes[i];
        lanes[i]->index = (uint8_t)i;
        lanes[i]->conn = conn;
    }
    psc_proto_conn_lanes(conn);
    conn_state_set(conn, PSC_CONN_UP);
    psc_count(conn, PSC_COUNTER_connections_up, 1);
    if (lanes[0]->role != PSC_ROLE_ACCEPTOR)
        psc_count(conn, PSC_COUNTER_connections_made, 1);
    for (uint32_t i = 0; i < n_lanes && conn->state == PSC_CONN_UP; i++)
        psc_lane_replay(lanes[i]);
    for (uint32_t i = 0; i < n_lanes; i++) {
        if (lanes[i]->state == PSC_LANE_FAILED)
            psc_lane_fail_conn(lanes[i]);
    }
    if (!lanes[0]->closing) {
        psc_proto_conn_up(conn);
        psc_conn_mark_busy(conn);
        psc_conn_flush(conn);
    }
    psc_wake(conn->worker, PSC_WAKE_NEWS | PSC_WAKE_SPENT);
    psc_worker_leave(conn->worker);
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
    psc_proto_conn_destroy(conn);
    if (conn->counters != &conn->worker->nobodys)
        free(conn->counters);
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
    psc_proto_inbox_drain(worker);
    psc_proto_conn_destroy(conn);
    psc_list_remove(&conn->link);
    psc_list_push(&worker->doomed, &conn->link);
    worker->ending = true;
    psc_conn_reap(worker);
    psc_worker_leave(worker);
}

/* ---- ends ---- */

void psc_conn_retire_lanes(psc_conn_t *conn)
{
    for (uint32_t i = 0; i < conn->n_lanes; i++)
        psc_lane_retire(conn->lanes[i]);
}

void psc_conn_fail_locked(psc_conn_t *conn, psc_status_t status)
{
    if (psc_conn_ended(conn))
        return;
    conn_state_set(conn, status == PSC_ERR_CLOSED ? PSC_CONN_CLOSED
                                                  : PSC_CONN_FAILED);
    psc_proto_conn_ended(conn, status);
    psc_conn_retire_lanes(conn);
    psc_list_remove(&conn->busy_link);
    psc_wake(conn->worker, PSC_WAKE_NEWS);
}

void psc_conn_fail(psc_conn_t *conn, int status)
{
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    if (conn->state == PSC_CONN_CONNECTING && status == PSC_ERR_CONNECT) {
        /* Nothing came up, nothing was lost: the next use tries again. */
        psc_proto_conn_ended(conn, (psc_status_t)status);
        conn->status = PSC_OK;
        conn_state_set(conn, PSC_CONN_LAZY);
    } else {
        psc_conn_fail_locked(conn, (psc_status_t)status);
    }
    psc_wake(conn->worker, PSC_WAKE_NEWS | PSC_WAKE_SPENT);
    psc_worker_leave(conn->worker);
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
        if (psc_worker_pass(worker, PSC_PASS_ALL) == 0)
            break;
    }
    if (psc_conn_ended(conn))
        status = PSC_OK;
    else if (conn_will_say(conn) && !last)
        status = PSC_INPROGRESS;
    else
        psc_conn_fail_locked(conn, conn->close_sent ? PSC_ERR_CLOSED
                                                    : PSC_ERR_PEER_LOST);
    psc_wake(worker, PSC_WAKE_NEWS | PSC_WAKE_SPENT);
    psc_worker_leave(worker);
    return status;
}

void psc_conn_reason(psc_conn_t *conn, char *text)
{
    text[0] = '\0';
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    for (uint32_t i = 0; i < conn->n_lanes && !text[0]; i++)
        memcpy(text, conn->lanes[i]->reason, PSC_REASON_MAX);
    psc_worker_leave(conn->worker);
}

void psc_conn_close(psc_conn_t *conn)
{
    psc_worker_t *worker = conn->worker;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    if (conn->state == PSC_CONN_UP) {
        conn->status = PSC_ERR_CLOSED;
        conn_state_set(conn, PSC_CONN_CLOSING);
        psc_proto_receives_ended(conn, PSC_ERR_CLOSED);
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
    psc_proto_conn_ended(conn, PSC_ERR_CLOSED);
    conn_state_set(conn, PSC_CONN_CLOSED);
    psc_wake(conn->worker, PSC_WAKE_NEWS);
}

void psc_conn_close_received(psc_conn_t *conn, bool is_ack)
{
    if (psc_conn_ended(conn))
        return;
    if (!is_ack) {
        conn_peer_closes(conn);
    } else if (conn->close_ack_due) {
        psc_proto_conn_ended(conn, PSC_ERR_CLOSED);
        conn_state_set(conn, PSC_CONN_CLOSED);
    } else {
        psc_conn_fail_locked(conn, PSC_ERR_CLOSED);
    }
}
