/* Connections: creation, state, and the ways in which they end. */
#include "conn.h"

#include <stdlib.h>

#include "lane.h"
#include "lost_ranks.h"
#include "progress/progress.h"
#include "upward.h"
#include "worker.h"

/* ---- states ---- */

/* The only function that changes a connection's state. The control plane gets
 * no control event of the states before CLOSING, which it causes itself. */
void psc_conn_state_set(psc_conn_t *conn, psc_conn_state_t state)
{
    psc_budget_share(&conn->worker->budget,
                     (state == PSC_CONN_UP) - (conn->state == PSC_CONN_UP));
    __atomic_store_n(&conn->state, state, __ATOMIC_RELEASE);
    if (state >= PSC_CONN_CLOSING)
        psc_control_event_post(&conn->worker->control_events,
                               &conn->event_slot);
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

/* ---- creation and destruction ---- */

psc_conn_t *psc_conn_create(psc_worker_t *worker, uint64_t id, int rank,
                            bool needs_precon)
{
    psc_conn_t *conn = calloc(1, sizeof *conn);

    if (!conn)
        return NULL;
    conn->worker = worker;
    conn->id = id;
    conn->rank = rank;
    conn->needs_precon = needs_precon;
    conn->counters = &worker->unowned;
    psc_flow_init(&conn->flow);
    psc_work_init(&conn->work);
    psc_event_slot_init(&conn->event_slot, PSC_CONTROL_CONN, id);
    conn->queues = &worker->matching.no_queues;
    psc_list_init(&conn->active);
    psc_list_init(&conn->maps);
    psc_list_init(&conn->emulated.waiting);
    if (psc_worker_enter(worker, 0) != PSC_OK) {
        free(conn);
        return NULL;
    }
    psc_list_push(&worker->conns, &conn->link);
    psc_worker_leave(worker);
    return conn;
}

void psc_conn_set_rank(psc_conn_t *conn, int rank)
{
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    conn->rank = rank;
    psc_worker_leave(conn->worker);
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
    if (conn->worker->runs.engine)
        conn->worker->runs.engine->conn_freed(conn);
    conn->worker->up->conn_destroy(conn);
    conn->worker->up->conn_freed(conn);
    if (conn->counters != &conn->worker->unowned)
        free(conn->counters);
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        psc_event_slot_end(&conn->lanes[i]->event_slot);
        free(conn->lanes[i]);
    }
    psc_list_remove(&conn->work.busy_link);
    psc_event_slot_end(&conn->event_slot);
    psc_list_remove(&conn->link);
    free(conn->error);
    free(conn);
}

void psc_conn_reap(psc_worker_t *worker)
{
    psc_list_for_each(conn, &worker->ends.doomed, psc_conn_t, link) {
        if (!conn_needed(conn))
            conn_free(conn);
    }
}

void psc_conn_destroy_all(psc_worker_t *worker)
{
    psc_list_for_each(conn, &worker->ends.doomed, psc_conn_t, link)
        conn_free(conn);
    psc_list_for_each(conn, &worker->conns, psc_conn_t, link)
        conn_free(conn);
}

/* Unreceived messages are freed at once, because a lane may be waiting for the
 * buffers that they hold. */
void psc_conn_destroy(psc_conn_t *conn)
{
    psc_worker_t *worker = conn->worker;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    psc_conn_fail_locked(conn, PSC_ERR_CLOSED);
    worker->up->inbox_drain(worker);
    conn->worker->up->conn_destroy(conn);
    psc_list_remove(&conn->link);
    psc_ends_add(&worker->ends, &worker->ends.doomed, &conn->link);
    psc_conn_reap(worker);
    psc_worker_leave(worker);
}

/* ---- how connections end ---- */

void psc_call_drop(psc_conn_t *conn)
{
    if (!conn->call)
        return;
    psc_lane_abandon(conn->call);
    psc_control_events_hold(&conn->worker->control_events, -1);
    conn->call = NULL;
}

void psc_conn_retire_lanes(psc_conn_t *conn)
{
    for (uint32_t i = 0; i < conn->n_lanes; i++)
        psc_lane_retire(conn->lanes[i]);
    psc_call_drop(conn);
}

void psc_conn_fail_locked(psc_conn_t *conn, psc_status_t status)
{
    if (psc_conn_ended(conn))
        return;
    psc_conn_state_set(conn, status == PSC_ERR_CLOSED ? PSC_CONN_CLOSED
                                                      : PSC_CONN_FAILED);
    if (status != PSC_ERR_CLOSED)
        psc_lost_rank_add(conn->worker, conn->rank, status);
    conn->worker->up->conn_ended(conn, status);
    psc_conn_retire_lanes(conn);
    psc_list_remove(&conn->work.busy_link);
    psc_wake(conn->worker, PSC_WAKE_EVENT);
}

void psc_conn_lost(psc_conn_t *conn, psc_status_t status)
{
    if (conn->closing.sent || conn->closing.received)
        status = PSC_ERR_CLOSED;
    /* the peer has ended without a CLOSE message */
    else if (status == PSC_ERR_CLOSED)
        status = PSC_ERR_PEER_LOST;
    psc_conn_fail_locked(conn, status);
}

/* The peer closes and sends no more messages. If both sides close at the same
 * time, each acknowledges the other's CLOSE and waits for its own
 * acknowledgement. */
static void conn_peer_closes(psc_conn_t *conn)
{
    conn->closing.received = conn->closing.ack_due = true;
    psc_conn_mark_busy(conn);
    if (conn->state == PSC_CONN_CLOSING && conn->closing.sent)
        return;
    conn->worker->up->conn_ended(conn, PSC_ERR_CLOSED);
    psc_conn_state_set(conn, PSC_CONN_CLOSED);
    psc_wake(conn->worker, PSC_WAKE_EVENT);
}

void psc_conn_close_received(psc_conn_t *conn, bool is_ack)
{
    if (psc_conn_ended(conn))
        return;
    if (!is_ack) {
        conn_peer_closes(conn);
    } else if (conn->closing.ack_due) {
        conn->worker->up->conn_ended(conn, PSC_ERR_CLOSED);
        psc_conn_state_set(conn, PSC_CONN_CLOSED);
    } else {
        psc_conn_fail_locked(conn, PSC_ERR_CLOSED);
    }
}
