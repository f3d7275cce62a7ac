/* The functions that transports call: messages and events of a lane, passed up
 * to the protocols. */
#include "lane.h"

#include <stdio.h>
#include <stdlib.h>

#include "conn.h"
#include "memory/memory.h"
#include "progress/progress.h"
#include "upward.h"

static psc_lane_t *lane_of(psc_ep_t *ep)
{
    return ep->user;
}

/* ---- the end of a lane ---- */

void psc_lane_break(psc_lane_t *lane, psc_status_t status)
{
    char line[PSC_REASON_MAX];

    snprintf(line, sizeof line,
             "%s: a message of the peer was refused (%s); the connection ends",
             lane->slot->ops->name, psc_status_string(status));
    psc_control_events_log(&lane->worker->control_events, 1, line);
    if (lane->conn) {
        psc_conn_fail_locked(lane->conn, status);
        return;
    }
    snprintf(lane->reason, sizeof lane->reason,
             "%s: a message of the peer was refused (%s)",
             lane->slot->ops->name, psc_status_string(status));
    psc_lane_fail(lane, status);
}

/* Returns true if this lane is not the main lane, and the main lane is up and
 * will report the peer's end after the peer's last message. */
static bool lane_before_main(psc_lane_t *lane)
{
    const psc_lane_t *main = psc_conn_main_lane(lane->conn);

    return lane != main && main->state == PSC_LANE_UP &&
           main->slot->attr.caps & PSC_CAP_EOF &&
           lane->conn->state == PSC_CONN_UP;
}

static void lane_fail_conn(psc_lane_t *lane)
{
    psc_conn_t *conn = lane->conn;

    if (!conn || lane->closing)
        return;
    if (psc_lane_spare(lane) && !psc_conn_ended(conn) &&
        (conn->replay || !conn->closing.sent)) {
        psc_lane_lose(lane);
        return;
    }
    /* The main lane will report the peer's end: notify only the control plane,
     * which waits for that report. */
    if (lane_before_main(lane)) {
        psc_control_event_post(&conn->worker->control_events,
                               &conn->event_slot);
        return;
    }
    psc_conn_lost(conn, lane->status);
    /* If the connection had ended before, psc_conn_lost has retired no lanes;
     * without the main lane no CLOSE_ACK can be sent any more. */
    if (lane == conn->main)
        psc_conn_retire_lanes(conn);
    else
        psc_lane_retire(lane);
}

/* ---- messages that arrive before the lane is installed ---- */

/* Returns true if messages of this lane are discarded, because its connection
 * has ended, even if a CLOSE_ACK is still to be sent on it. */
static bool lane_deaf(const psc_lane_t *lane)
{
    return lane->closing || (lane->conn && psc_conn_ended(lane->conn));
}

/* End a lane that is not installed, because a message of it cannot be kept. */
static void lane_early_fails(psc_lane_t *lane, psc_status_t status)
{
    if (lane->state == PSC_LANE_FAILED)
        return;
    if (status == PSC_ERR_PROTOCOL)
        snprintf(lane->reason, sizeof lane->reason,
                 "%s: the peer has sent more than %u bytes before the "
                 "connection was up",
                 lane->slot->ops->name, PSC_EARLY_MAX);
    else
        snprintf(lane->reason, sizeof lane->reason,
                 "%s: there is no memory for a message that the peer has sent "
                 "before the connection was up",
                 lane->slot->ops->name);
    psc_lane_fail(lane, status);
}

static void lane_keep_early(psc_lane_t *lane, const psc_am_t *am)
{
    psc_status_t status = psc_early_keep(lane, am);

    if (status != PSC_OK)
        lane_early_fails(lane, status);
}

static void lane_replay(psc_lane_t *lane)
{
    psc_early_t *early;

    while (!lane_deaf(lane) && (early = psc_early_pop(lane))) {
        psc_status_t status = lane->worker->up->arrived(lane, &early->am);

        free(early);
        if (status < 0)
            psc_lane_break(lane, status);
    }
}

/* ---- whole messages ---- */

static psc_status_t lane_deliver(psc_ep_t *ep, const psc_am_t *am)
{
    psc_lane_t *lane = lane_of(ep);
    psc_status_t status;

    if (lane_deaf(lane))
        return PSC_OK;
    if (!lane->conn) {
        lane_keep_early(lane, am);
        return PSC_OK;
    }
    status = lane->worker->up->arrived(lane, am);
    if (status < 0) {
        psc_lane_break(lane, status);
        return PSC_OK;
    }
    return status;
}

/* Active messages with an id from PSC_WIRE_MATCHED on are made from tagged
 * messages on this side; a peer must not send one. */
static psc_status_t lane_am_recv(psc_ep_t *ep, const psc_am_t *am)
{
    if (am->id < PSC_WIRE_MATCHED)
        return lane_deliver(ep, am);
    psc_lane_break(lane_of(ep), PSC_ERR_PROTOCOL);
    return PSC_OK;
}

/* Turn a tagged message that the fabric could not match into the corresponding
 * active message, and deliver this active message. */
static void lane_tag_goes_on(psc_ep_t *ep, uint64_t bits, uint8_t id,
                             const void *payload, size_t len)
{
    const psc_conn_t *conn = lane_of(ep)->conn;
    psc_wire_eager_t wire = {
        /* the limit on our eager bytes that is known already, so that nothing
         * changes */
        .credit = conn ? conn->flow.limit : 0,
        .tag = (uint32_t)(bits & PSC_TAG_MASK),
        .context = psc_tag_context(bits),
    };
    psc_am_t am = {.id = id,
                   .header_len = sizeof wire,
                   .header = &wire,
                   .payload = payload,
                   .len = len};

    lane_deliver(ep, &am);
}

static void lane_tag_unexpected(psc_ep_t *ep, uint64_t bits,
                                const void *payload, size_t len)
{
    uint8_t id = PSC_WIRE_EAGER;

    if (bits & PSC_TAG_MARK)
        id = len > 0 ? PSC_WIRE_WHOLE : PSC_WIRE_MARK;
    lane_tag_goes_on(ep, bits, id, payload, len);
}

static void lane_tag_missed(psc_ep_t *ep, uint64_t bits, size_t len,
                            uint32_t number)
{
    psc_wire_missed_t missed = {.len = len, .number = number};

    lane_tag_goes_on(ep, bits, PSC_WIRE_MISSED, &missed, sizeof missed);
}

/* ---- messages whose header arrives before their payload ---- */

static void lane_am_begin(psc_ep_t *ep, uint8_t id, const void *header,
                          uint8_t header_len, uint64_t len, psc_dest_t *dest_p)
{
    psc_lane_t *lane = lane_of(ep);

    *dest_p = (psc_dest_t){.iov = NULL};
    if (lane_deaf(lane))
        return;
    lane->incoming.kind = PSC_INCOMING_NONE;
    lane->incoming.id = id;
    lane->incoming.header_len = header_len;
    lane->incoming.len = len;
    if (lane->conn)
        lane->worker->up->begin(lane, header, dest_p);
    else if (id >= PSC_WIRE_MATCHED)
        psc_lane_break(lane, PSC_ERR_PROTOCOL);
    else if (len > PSC_EARLY_MAX)
        lane_early_fails(lane, PSC_ERR_PROTOCOL);
    else
        psc_landing_bounce(&lane->incoming, header, dest_p);
    dest_p->cookie = lane->conn;
}

/* End a payload that began before the lane was installed; the lane may be
 * installed now. */
static psc_status_t lane_end_early(psc_lane_t *lane)
{
    psc_incoming_t *in = &lane->incoming;
    psc_am_t am = psc_incoming_bounced(in);
    psc_status_t status = PSC_OK;

    if (in->kind != PSC_INCOMING_BOUNCE) {
        if (lane->conn)
            return PSC_ERR_NO_MEMORY;
        lane_early_fails(lane, PSC_ERR_NO_MEMORY);
        return PSC_OK;
    }
    in->kind = PSC_INCOMING_NONE;
    if (lane->conn)
        status = lane->worker->up->arrived(lane, &am);
    else
        lane_keep_early(lane, &am);
    free((void *)am.payload);
    return status;
}

static void lane_am_end(psc_ep_t *ep, void *cookie)
{
    psc_lane_t *lane = lane_of(ep);
    psc_status_t status;

    if (lane_deaf(lane))
        return;
    status = cookie ? lane->worker->up->end(lane) : lane_end_early(lane);
    if (status < 0)
        psc_lane_break(lane, status);
}

/* ---- installing lanes ---- */

/* Allocate the connection's counters. Done only when its lanes are installed,
 * because there may be very many lazy connections. */
static bool conn_counters_make(psc_conn_t *conn)
{
    psc_counters_t *counters = calloc(1, sizeof *counters);

    if (counters)
        conn->counters = counters;
    return counters != NULL;
}

static void lanes_take(psc_conn_t *conn, psc_lane_t **lanes, uint32_t n_lanes)
{
    conn->n_lanes = n_lanes;
    conn->main = lanes[0];
    conn->out = (psc_outlet_t){lanes[0]->slot->ops, lanes[0]->ep};
    for (uint32_t i = 0; i < n_lanes; i++) {
        conn->lanes[i] = lanes[i];
        lanes[i]->index = (uint8_t)i;
        lanes[i]->conn = conn;
        lanes[i]->among = n_lanes > 1;
        psc_lane_further(lanes[i], i > 0);
    }
}

/* Undo lanes_take and conn_counters_make: the lanes belong to the caller again.
 */
static void lanes_return(psc_conn_t *conn)
{
    while (conn->n_lanes > 0) {
        psc_lane_t *lane = conn->lanes[--conn->n_lanes];

        lane->conn = NULL;
        psc_lane_further(lane, false);
    }
    conn->main = NULL;
    conn->out = (psc_outlet_t){NULL, NULL};
    free(conn->counters);
    conn->counters = &conn->worker->unowned;
}

psc_status_t psc_lanes_install(psc_conn_t *conn, psc_lane_t **lanes,
                               uint32_t n_lanes,
                               const psc_proto_params_t *params)
{
    if (n_lanes == 0 || n_lanes > PSC_LANES_MAX ||
        conn->state > PSC_CONN_CONNECTING)
        return PSC_ERR_INVALID;
    if (!conn_counters_make(conn))
        return PSC_ERR_NO_MEMORY;
    conn->worker->up->conn_params(conn, params);
    lanes_take(conn, lanes, n_lanes);
    if (!conn->worker->up->conn_lanes(conn)) {
        lanes_return(conn);
        return PSC_ERR_NO_MEMORY;
    }
    if (n_lanes > 1)
        psc_lanes_count(conn);
    psc_conn_state_set(conn, PSC_CONN_UP);
    psc_count(conn, PSC_COUNTER_connections_up, 1);
    if (lanes[0]->role != PSC_ROLE_ACCEPTOR)
        psc_count(conn, PSC_COUNTER_connections_made, 1);
    for (uint32_t i = 0; i < n_lanes && conn->state == PSC_CONN_UP; i++)
        lane_replay(lanes[i]);
    for (uint32_t i = 0; i < n_lanes; i++) {
        if (lanes[i]->state == PSC_LANE_FAILED)
            lane_fail_conn(lanes[i]);
    }
    if (!conn->main->closing) {
        conn->worker->up->conn_up(conn);
        psc_conn_mark_busy(conn);
        psc_conn_flush(conn);
    }
    return PSC_OK;
}

psc_status_t psc_lane_join(psc_conn_t *conn, uint32_t index, psc_lane_t *lane)
{
    uint8_t bit = (uint8_t)(1u << index);
    psc_lane_t *old;

    if (index >= conn->n_lanes || !(conn->lost.joining & bit) ||
        conn->state != PSC_CONN_UP || lane->conn)
        return PSC_ERR_INVALID;
    if (lane->slot->attr.max_bcopy < conn->max_bcopy ||
        (conn->replay && !psc_lane_replaceable(lane)))
        return PSC_ERR_UNSUPPORTED;
    old = conn->lanes[index];
    lane->index = (uint8_t)index;
    lane->conn = conn;
    lane->among = true;
    lane->stripe.given = old->stripe.given;
    psc_lane_further(lane, true);
    conn->lanes[index] = lane;
    psc_event_slot_end(&old->event_slot);
    free(old);
    conn->lost.joined |= bit;
    conn->lost.up_due |= bit;
    psc_conn_mark_busy(conn);
    if (conn->lost.acked & bit)
        psc_lane_useless(lane);
    psc_lane_met(lane);
    lane_replay(lane);
    if (lane->state == PSC_LANE_FAILED)
        lane_fail_conn(lane);
    psc_conn_flush(conn);
    psc_wake(conn->worker, PSC_WAKE_SPENT);
    return PSC_OK;
}

/* ---- calls between ranks on one node (control.h) ---- */

psc_status_t psc_call_begin(psc_conn_t *conn)
{
    psc_worker_t *worker = conn->worker;
    psc_iface_slot_t *slot = worker->interfaces.calls;
    psc_status_t status;
    psc_lane_t *lane;

    if (!slot || conn->rank < 0 || conn->state != PSC_CONN_LAZY)
        return PSC_ERR_UNSUPPORTED;
    lane = psc_lane_open(worker, slot, PSC_CONTROL_CALL, (uint64_t)conn->rank);
    if (!lane)
        return PSC_ERR_NO_MEMORY;
    status = slot->ops->ep_call(lane->ep, conn->rank);
    if (status < 0) {
        psc_lane_abandon(lane);
        return status;
    }
    lane->caller = conn;
    conn->call = lane;
    conn->needs_precon = true;
    psc_control_events_hold(&worker->control_events, +1);
    psc_lane_state_set(lane, PSC_LANE_CONNECTING);
    psc_conn_state_set(conn, PSC_CONN_CONNECTING);
    return PSC_OK;
}

static void call_up(psc_lane_t *lane)
{
    psc_conn_t *conn = lane->caller;
    int process;

    if (lane->slot->ops->ep_called(lane->ep, &process))
        lane->role = PSC_ROLE_ACCEPTOR;
    lane->caller = NULL;
    conn->call = NULL;
    psc_control_events_hold(&lane->worker->control_events, -1);
    if (psc_lanes_install(conn, &lane, 1,
                          &lane->worker->interfaces.call_params) != PSC_OK)
        psc_lane_abandon(lane);
    psc_wake(lane->worker, PSC_WAKE_EVENT | PSC_WAKE_SPENT);
}

/* ---- events ---- */

static void lane_ep_up(psc_ep_t *ep)
{
    psc_lane_t *lane = lane_of(ep);

    if (lane->state == PSC_LANE_CONNECTING)
        psc_lane_state_set(lane, PSC_LANE_UP);
    if (lane->caller)
        call_up(lane);
}

static void lane_ep_failed(psc_ep_t *ep, psc_status_t status,
                           const char *reason)
{
    psc_lane_t *lane = lane_of(ep);

    snprintf(lane->reason, sizeof lane->reason, "%s", reason);
    psc_lane_fail(lane, status);
    lane_fail_conn(lane);
}

static psc_status_t lane_rank_calls(psc_iface_t *iface, int rank)
{
    psc_worker_t *worker = ((psc_iface_slot_t *)iface->user)->worker;

    if (!worker->interfaces.calls) /* calls are refused after psc_worker_part */
        return PSC_ERR_INVALID;
    psc_list_for_each(conn, &worker->conns, psc_conn_t, link)
        if (conn->rank == rank)
            return psc_call_begin(conn) < 0 ? PSC_ERR_INVALID : PSC_OK;
    return psc_control_events_caller(&worker->control_events, rank);
}

static void lane_log(psc_iface_t *iface, int level, const char *line)
{
    psc_iface_slot_t *slot = iface->user;

    psc_control_events_log(&slot->worker->control_events, level, line);
}

static void lane_holding(psc_iface_t *iface, int holding)
{
    psc_iface_slot_t *slot = iface->user;

    psc_control_events_hold(&slot->worker->control_events, holding ? 1 : -1);
}

const psc_upcalls_t psc_lane_upcalls = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_upcalls_t),
    .am_recv = lane_am_recv,
    .am_begin = lane_am_begin,
    .am_end = lane_am_end,
    .ep_up = lane_ep_up,
    .ep_failed = lane_ep_failed,
    .log = lane_log,
    .tag_unexpected = lane_tag_unexpected,
    .tag_missed = lane_tag_missed,
    .holding = lane_holding,
    .rank_calls = lane_rank_calls,
};
