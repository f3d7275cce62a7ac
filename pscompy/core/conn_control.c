/* The control plane's operations on connections, which control.h declares. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conn.h"
#include "lane.h"
#include "progress/progress.h"
#include "upward.h"
#include "worker.h"

/* ---- installing lanes ---- */

int psc_conn_install(psc_conn_t *conn, psc_lane_t **lanes, uint32_t n_lanes,
                     const psc_proto_params_t *params)
{
    psc_status_t status = psc_worker_enter(conn->worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_lanes_install(conn, lanes, n_lanes, params);
    psc_wake(conn->worker, PSC_WAKE_EVENT | PSC_WAKE_SPENT);
    return psc_worker_left(conn->worker, status);
}

/* ---- connecting ranks on one node by calls (control.h) ---- */

int psc_worker_join(psc_worker_t *worker, int iface, const uint8_t *key,
                    int rank, const psc_proto_params_t *params)
{
    psc_interfaces_t *interfaces = &worker->interfaces;
    psc_iface_slot_t *slot = psc_iface_slot(interfaces, iface);
    psc_status_t status = PSC_ERR_UNSUPPORTED;
    int fd = -1;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return PSC_ERR_FORKED;
    if (slot->ops->join)
        status = slot->ops->join(slot->iface, key, rank, &fd);
    if (status == PSC_OK) {
        interfaces->calls = slot;
        interfaces->call_params = *params;
    }
    psc_worker_leave(worker);
    return status == PSC_OK ? fd : status;
}

void psc_worker_part(psc_worker_t *worker)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    worker->interfaces.calls = NULL;
    psc_worker_leave(worker);
}

int psc_conn_call(psc_conn_t *conn, uint32_t flags)
{
    psc_status_t status = psc_worker_enter(conn->worker, flags);

    if (status != PSC_OK)
        return status;
    if (conn->state != PSC_CONN_UP && !conn->call)
        status =
            conn->needs_precon ? PSC_ERR_UNSUPPORTED : psc_call_begin(conn);
    psc_wake(conn->worker, PSC_WAKE_EVENT | PSC_WAKE_SPENT);
    return psc_worker_left(conn->worker, status);
}

/* Have the control plane connect. */
static void conn_ask_control(psc_conn_t *conn)
{
    conn->needs_precon = true;
    psc_conn_state_set(conn, PSC_CONN_CONNECTING);
    psc_control_event_post(&conn->worker->control_events, &conn->event_slot);
}

psc_status_t psc_conn_open(psc_conn_t *conn, uint32_t flags)
{
    psc_status_t status = psc_worker_enter(conn->worker, flags);

    if (status != PSC_OK)
        return status;
    if (conn->state == PSC_CONN_LAZY) {
        if (conn->needs_precon || psc_call_begin(conn) != PSC_OK)
            conn_ask_control(conn);
        psc_wake(conn->worker, PSC_WAKE_EVENT | PSC_WAKE_SPENT);
    }
    return psc_worker_left(conn->worker, (psc_status_t)conn->status);
}

int psc_conn_call_state(psc_conn_t *conn, int *process_p)
{
    const psc_lane_t *lane;
    psc_call_state_t state = PSC_CALL_NONE;

    *process_p = 0;
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return state;
    lane = conn->call ? conn->call : conn->n_lanes ? conn->lanes[0] : NULL;
    if (lane && lane->ep && lane->slot->ops->ep_called)
        state = lane->slot->ops->ep_called(lane->ep, process_p)
                    ? PSC_CALL_CALLED
                    : PSC_CALL_CALLING;
    if (!conn->call)
        state = conn->n_lanes ? PSC_CALL_UP : PSC_CALL_NONE;
    else if (lane->state == PSC_LANE_FAILED)
        state = PSC_CALL_FAILED;
    return (int)psc_worker_left(conn->worker, (psc_status_t)state);
}

void psc_conn_hang_up(psc_conn_t *conn)
{
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    psc_call_drop(conn);
    psc_worker_leave(conn->worker);
}

/* ---- protocol parameters that fit what was measured ---- */

void psc_conn_rates(psc_conn_t *conn, psc_moved_t *copies, psc_moved_t *gets)
{
    psc_rates_t *rates = &conn->rates;

    *copies = *gets = (psc_moved_t){0};
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    if (rates->copies.messages + rates->gets.messages >= rates->due) {
        *copies = rates->copies;
        *gets = rates->gets;
        rates->copies = rates->gets = (psc_moved_t){0};
        if (rates->due < UINT32_MAX / 2)
            rates->due *= 2;
    }
    psc_worker_leave(conn->worker);
}

void psc_conn_adapt(psc_conn_t *conn, const psc_proto_params_t *params)
{
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    conn->worker->up->conn_params(conn, params);
    psc_worker_leave(conn->worker);
}

/* ---- other changes of state ---- */

int psc_conn_connecting(psc_conn_t *conn)
{
    psc_status_t status = psc_worker_enter(conn->worker, 0);

    if (status != PSC_OK)
        return status;
    if (conn->state != PSC_CONN_LAZY)
        return psc_worker_left(conn->worker, PSC_ERR_INVALID);
    conn->needs_precon = true;
    psc_conn_state_set(conn, PSC_CONN_CONNECTING);
    return psc_worker_left(conn->worker, PSC_OK);
}

void psc_conn_fail(psc_conn_t *conn, int status)
{
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    if (conn->state == PSC_CONN_CONNECTING && status == PSC_ERR_CONNECT) {
        /* No lane was up, so nothing is lost: the next use connects again. */
        conn->worker->up->conn_ended(conn, (psc_status_t)status);
        conn->status = PSC_OK;
        psc_call_drop(conn);
        psc_conn_state_set(conn, PSC_CONN_LAZY);
    } else {
        psc_conn_fail_locked(conn, (psc_status_t)status);
    }
    psc_wake(conn->worker, PSC_WAKE_EVENT | PSC_WAKE_SPENT);
    psc_worker_leave(conn->worker);
}

int psc_conn_lane_lost(psc_conn_t *conn)
{
    int lost = 0;

    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return 0;
    for (uint32_t i = 0; i < conn->n_lanes; i++)
        lost |= conn->lanes[i]->state == PSC_LANE_FAILED &&
                !conn->lanes[i]->closing;
    psc_worker_leave(conn->worker);
    return lost;
}

int psc_conn_rail_lost(psc_conn_t *conn, uint32_t lane, char *reason)
{
    int lost;

    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return 0;
    lost = (conn->lost.gone | (conn->lost.joining & ~conn->lost.joined)) &
           1u << lane;
    if (lost)
        memcpy(reason, conn->lanes[lane]->reason, PSC_REASON_MAX);
    psc_worker_leave(conn->worker);
    return lost != 0;
}

static psc_status_t conn_join_begin(psc_conn_t *conn, uint8_t bit)
{
    if (!(conn->lost.gone & bit) || conn->lost.down_due & bit ||
        conn->state != PSC_CONN_UP)
        return PSC_ERR_NO_RESOURCE;
    conn->lost.gone &= (uint8_t)~bit;
    conn->lost.joining |= bit;
    return PSC_OK;
}

int psc_conn_join_begin(psc_conn_t *conn, uint32_t lane)
{
    return psc_worker_locked(conn->worker, 0,
                             conn_join_begin(conn, (uint8_t)(1u << lane)));
}

int psc_conn_join(psc_conn_t *conn, uint32_t lane, psc_lane_t *joined)
{
    return psc_worker_locked(conn->worker, 0,
                             psc_lane_join(conn, lane, joined));
}

void psc_conn_join_fail(psc_conn_t *conn, uint32_t lane)
{
    uint8_t bit = (uint8_t)(1u << lane);

    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    if (conn->lost.joining & ~conn->lost.joined & bit) {
        /* If LANE_DOWN has arrived, because the peer has lost the new lane on
         * its side, answer it. */
        if (conn->lost.acked & bit) {
            conn->lost.down_due |= bit;
            psc_conn_mark_busy(conn);
        }
        psc_lost_forget(&conn->lost, bit);
        conn->lost.gone |= bit;
    }
    psc_worker_leave(conn->worker);
}

/* Maximum number of passes that are made to receive a dead peer's last
 * messages. */
#define CONN_DRAIN_PASSES 10000

/* Returns true if the main lane reports the peer's end itself, after the peer's
 * last message. The report over the precon (between the control planes)
 * may arrive earlier than messages. */
static bool conn_will_say(const psc_conn_t *conn)
{
    return conn->n_lanes > 0 && conn->main->slot->attr.caps & PSC_CAP_EOF;
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
        psc_conn_fail_locked(conn, conn->closing.sent ? PSC_ERR_CLOSED
                                                      : PSC_ERR_PEER_LOST);
    psc_wake(worker, PSC_WAKE_EVENT | PSC_WAKE_SPENT);
    psc_worker_leave(worker);
    return status;
}

/* Returns the reason that a transport gave for the connection's end, or "". */
static const char *conn_reason(const psc_conn_t *conn)
{
    const char *reason = conn->replay ? conn->main->reason : "";

    for (uint32_t i = 0; i < conn->n_lanes && !reason[0]; i++) {
        if (!psc_lane_spare(conn->lanes[i]))
            reason = conn->lanes[i]->reason;
    }
    return conn->call ? conn->call->reason : reason;
}

void psc_conn_reason(psc_conn_t *conn, char *text)
{
    text[0] = '\0';
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    snprintf(text, PSC_REASON_MAX, "%s", conn_reason(conn));
    psc_worker_leave(conn->worker);
}

/* A transport knows best why its lane was lost, the control plane everything
 * else. */
static const char *conn_error(const psc_conn_t *conn)
{
    bool lost =
        conn->status == PSC_ERR_PEER_LOST || conn->status == PSC_ERR_TRANSPORT;
    const char *reason = lost ? conn_reason(conn) : "";

    if (reason[0])
        return reason;
    if (conn->error)
        return conn->error;
    return conn->status == PSC_OK
               ? ""
               : psc_status_string((psc_status_t)conn->status);
}

void psc_conn_error(psc_conn_t *conn, char *text, size_t room)
{
    text[0] = '\0';
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    snprintf(text, room, "%s", conn_error(conn));
    psc_worker_leave(conn->worker);
}

void psc_conn_set_error(psc_conn_t *conn, const char *text)
{
    char *copy = text[0] ? strdup(text) : NULL;

    if (psc_worker_enter(conn->worker, 0) != PSC_OK) {
        free(copy);
        return;
    }
    free(conn->error);
    conn->error = copy;
    psc_worker_leave(conn->worker);
}

void psc_conn_close(psc_conn_t *conn)
{
    psc_worker_t *worker = conn->worker;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    if (conn->state == PSC_CONN_UP) {
        conn->status = PSC_ERR_CLOSED;
        psc_conn_state_set(conn, PSC_CONN_CLOSING);
        conn->worker->up->receives_ended(conn, PSC_ERR_CLOSED);
        psc_conn_mark_busy(conn);
        psc_conn_flush(conn);
    } else if (conn->state != PSC_CONN_CLOSING) {
        psc_conn_fail_locked(conn, PSC_ERR_CLOSED);
    }
    psc_worker_leave(worker);
    /* a thread that is blocked in a send of this connection must check its
     * state */
    psc_worker_wake(worker);
}

/* ---- counters ---- */

void psc_conn_counters(psc_conn_t *conn, uint64_t *values)
{
    static const psc_counters_t none;
    const psc_counters_t *counters;

    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    counters =
        conn->counters == &conn->worker->unowned ? &none : conn->counters;
    memcpy(values, counters->value, sizeof counters->value);
    psc_worker_leave(conn->worker);
}

void psc_conn_announced(psc_conn_t *conn, psc_announced_t *announced)
{
    *announced = (psc_announced_t){0};
    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    *announced = (psc_announced_t){.sent = conn->rts_out,
                                   .arrived = conn->rts_in,
                                   .waits = psc_rts_out_full(conn),
                                   .peer_waits = psc_rts_in_full(conn)};
    psc_worker_leave(conn->worker);
}

uint64_t psc_worker_peer_waits(psc_worker_t *worker)
{
    uint64_t id = 0;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    psc_list_for_each(conn, &worker->conns, psc_conn_t, link)
        id = psc_rts_in_full(conn) ? conn->id : id;
    psc_worker_leave(worker);
    return id;
}

/* If the connection has several lanes, fill in a counter for each of them: the
 * bytes of long messages that the lane has carried. Returns the number of
 * counters. */
static uint32_t conn_lane_counters(const psc_conn_t *conn,
                                   psc_counted_t *counters, uint32_t capacity)
{
    static const char *const names[PSC_LANES_MAX] = {
        "lane0_bytes", "lane1_bytes", "lane2_bytes", "lane3_bytes"};
    uint32_t n = 0;

    for (; conn->n_lanes > 1 && n < conn->n_lanes && n < capacity; n++)
        counters[n] = (psc_counted_t){names[n], conn->lanes[n]->stripe.given};
    return n;
}

uint32_t psc_conn_fabric_counters(psc_conn_t *conn, psc_counted_t *counters,
                                  uint32_t capacity)
{
    uint32_t n;

    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return 0;
    n = conn_lane_counters(conn, counters, capacity);
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        const psc_lane_t *lane = conn->lanes[i];

        if (lane->ep && lane->slot->ops->ep_counters)
            n += lane->slot->ops->ep_counters(lane->ep, counters + n,
                                              capacity - n);
    }
    psc_worker_leave(conn->worker);
    return n;
}
