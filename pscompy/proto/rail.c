#include "rail.h"

#include <stdio.h>
#include <stdlib.h>

#include "../core/conn.h"
#include "../core/lane.h"
#include "../core/request.h"
#include "credit.h"
#include "stripe.h"

/* ---- spans ---- */

/* Make room for `more` spans. */
static bool spans_reserve(psc_spans_t *spans, uint32_t more)
{
    uint32_t capacity = 2 * (spans->n + more) < 16 ? 16 : 2 * (spans->n + more);
    psc_span_t *at;

    if (spans->n + more <= spans->capacity)
        return true;
    at = realloc(spans->at, capacity * sizeof *at);
    if (!at)
        return false;
    spans->at = at;
    spans->capacity = capacity;
    return true;
}

static psc_span_t *spans_find(const psc_spans_t *spans, uint8_t lane,
                              uint64_t offset)
{
    for (uint32_t i = 0; i < spans->n; i++) {
        if (spans->at[i].lane == lane && spans->at[i].offset == offset)
            return &spans->at[i];
    }
    return NULL;
}

/* ---- the pieces of a message ---- */

psc_span_t psc_rail_next(const psc_bulk_t *bulk)
{
    if (bulk->again.n > 0)
        return bulk->again.at[bulk->again.n - 1];
    return (psc_span_t){.offset = bulk->issued,
                        .len = bulk->len - bulk->issued};
}

bool psc_rail_reserve(psc_bulk_t *bulk)
{
    return spans_reserve(&bulk->taken, 1);
}

static void rail_advance(psc_req_t *req, size_t len)
{
    psc_bulk_t *bulk = req->bulk;
    psc_span_t *again;

    if (bulk->again.n == 0) {
        bulk->issued += len;
        return;
    }
    again = &bulk->again.at[bulk->again.n - 1];
    again->offset += len;
    again->len -= len;
    if (again->len == 0)
        bulk->again.n--;
    psc_count(psc_req_conn(req), PSC_COUNTER_fragments_again, 1);
}

void psc_rail_taken(psc_req_t *req, const psc_lane_t *lane, size_t len)
{
    psc_spans_t *taken = &req->bulk->taken;
    uint64_t offset = psc_rail_next(req->bulk).offset;

    rail_advance(req, len);
    if (psc_striped(req) && psc_lane_spare(lane))
        taken->at[taken->n++] = (psc_span_t){offset, len, lane->index};
}

void psc_rail_done(psc_req_t *req, const psc_lane_t *lane, uint64_t offset)
{
    psc_spans_t *taken = &req->bulk->taken;
    psc_span_t *span = spans_find(taken, lane->index, offset);

    if (span)
        *span = taken->at[--taken->n];
}

bool psc_rail_all_taken(const psc_bulk_t *bulk)
{
    return bulk->issued == bulk->len && bulk->again.n == 0;
}

/* ---- moving again ---- */

bool psc_rail_take_back(psc_bulk_t *bulk, uint8_t lane)
{
    psc_spans_t *taken = &bulk->taken, *again = &bulk->again;
    uint32_t kept = 0;

    if (!spans_reserve(again, taken->n))
        return false;
    for (uint32_t i = 0; i < taken->n; i++) {
        if (taken->at[i].lane == lane)
            again->at[again->n++] = taken->at[i];
        else
            taken->at[kept++] = taken->at[i];
    }
    taken->n = kept;
    return true;
}

bool psc_rail_take_back_one(psc_bulk_t *bulk, uint8_t lane, uint64_t offset)
{
    psc_spans_t *taken = &bulk->taken, *again = &bulk->again;
    psc_span_t *span = spans_find(taken, lane, offset);

    if (!span)
        return true;
    if (!spans_reserve(again, 1))
        return false;
    again->at[again->n++] = *span;
    *span = taken->at[--taken->n];
    return true;
}

/* Returns true for a message in fragments that its receiver has not
 * confirmed. */
static bool rail_unconfirmed(const psc_req_t *req)
{
    return req->kind == PSC_REQ_SEND && req->confirm &&
           (req->stage == PSC_STAGE_FRAG || req->stage == PSC_STAGE_AWAIT_FIN);
}

/* Returns true for a message whose puts or gets are being issued. */
static bool rail_moved_directly(const psc_req_t *req)
{
    return req->stage == PSC_STAGE_PUT || req->stage == PSC_STAGE_GET ||
           req->stage == PSC_STAGE_RMA_DIRECT;
}

static psc_status_t rail_move_again(psc_conn_t *conn, uint8_t lane)
{
    psc_lost_forget(&conn->lost, (uint8_t)(1u << lane));
    conn->lost.gone |= (uint8_t)(1u << lane);
    psc_list_for_each(req, &conn->active, psc_req_t, link) {
        if (!rail_unconfirmed(req) && !rail_moved_directly(req))
            continue;
        if (!psc_rail_take_back(req->bulk, lane))
            return PSC_ERR_NO_MEMORY;
        if (req->bulk->again.n == 0)
            continue;
        if (req->stage == PSC_STAGE_AWAIT_FIN)
            psc_req_stage_set(req, PSC_STAGE_FRAG);
        psc_conn_queue(conn, req);
    }
    psc_count(conn, PSC_COUNTER_rails_lost, 1);
    psc_control_event_post(&conn->worker->control_events, &conn->event_slot);
    return PSC_OK;
}

/* ---- the end of a lane ---- */

static uint8_t rail_bit(const psc_lane_t *lane)
{
    return (uint8_t)(1u << lane->index);
}

void psc_rail_lost(psc_lane_t *lane)
{
    psc_list_for_each(req, &lane->conn->active, psc_req_t, link) {
        if (req->stage != PSC_STAGE_AWAIT_DATA)
            continue;
        req->bulk->arrived -= req->bulk->arrived_by[lane->index];
        req->bulk->arrived_by[lane->index] = 0;
    }
}

void psc_rail_sealed(psc_lane_t *lane)
{
    psc_conn_t *conn = lane->conn;

    psc_stripe_drop(lane);
    if (psc_conn_ended(conn))
        return;
    conn->lost.sealed |= rail_bit(lane);
    conn->lost.down_due |= rail_bit(lane);
    psc_conn_mark_busy(conn);
    if (conn->lost.acked & rail_bit(lane) &&
        rail_move_again(conn, lane->index) != PSC_OK)
        psc_conn_fail_locked(conn, PSC_ERR_NO_MEMORY);
}

psc_status_t psc_rail_send(psc_conn_t *conn, psc_wire_id_t id)
{
    uint8_t due =
        id == PSC_WIRE_LANE_UP ? conn->lost.up_due : conn->lost.down_due;
    psc_wire_lane_t wire = {.index = (uint32_t)__builtin_ctz(due)};

    return psc_credit_send(conn, id, &wire, sizeof wire, NULL, 0);
}

/* Returns the lane that a LANE_DOWN or LANE_UP names; NULL if it is not a spare
 * lane. */
static psc_lane_t *rail_named(const psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_lane_t *wire = am->header;
    const psc_conn_t *conn = lane->conn;

    if (am->len > 0 || wire->index >= conn->n_lanes ||
        !psc_lane_spare(conn->lanes[wire->index]))
        return NULL;
    return conn->lanes[wire->index];
}

psc_status_t psc_rail_down_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    psc_lane_t *named = rail_named(lane, am);
    psc_conn_t *conn = lane->conn;
    psc_lost_t *lost = &conn->lost;
    uint8_t bit;

    if (!named)
        return PSC_ERR_PROTOCOL;
    bit = rail_bit(named);
    /* If this side has lost the lane and has no new one, the peer has lost its
     * new lane: answer with LANE_DOWN. */
    if (lost->gone & bit) {
        lost->down_due |= bit;
        psc_conn_mark_busy(conn);
        return PSC_OK;
    }
    if (lost->acked & bit)
        return PSC_ERR_PROTOCOL;
    lost->acked |= bit;
    if (lost->joining & ~lost->joined & bit)
        return PSC_OK; /* psc_lane_join or psc_conn_join_fail acts on `acked` */
    if (lost->sealed & bit)
        return rail_move_again(conn, named->index);
    psc_lane_useless(named);
    return PSC_OK;
}

void psc_rail_met(psc_lane_t *lane)
{
    if (!(lane->conn->lost.joining & rail_bit(lane)))
        return;
    lane->conn->lost.met |= rail_bit(lane);
    psc_lane_met(lane);
}

psc_status_t psc_rail_up_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    psc_lane_t *named = rail_named(lane, am);

    if (!named)
        return PSC_ERR_PROTOCOL;
    psc_rail_met(named);
    return PSC_OK;
}
