/* The functions that transports call: messages and events of a lane, passed up
 * to the protocols. */
#include "lane_upcalls.h"

#include <stdio.h>
#include <stdlib.h>

#include "conn.h"
#include "lane.h"
#include "lane_early.h"
#include "memory/access.h"
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
    psc_notices_log(&lane->worker->notices, 1, line);
    psc_conn_fail_locked(lane->conn, status);
}

void psc_lane_fail_conn(psc_lane_t *lane)
{
    psc_conn_t *conn = lane->conn;
    psc_status_t status = lane->status;

    if (!conn || lane->closing)
        return;
    if (conn->closing.sent || conn->closing.received)
        status = PSC_ERR_CLOSED;
    else if (status == PSC_ERR_CLOSED) /* only CLOSE ends it normally */
        status = PSC_ERR_PEER_LOST;
    psc_conn_fail_locked(conn, status);
    /* the connection had ended before; its ack cannot be sent */
    if (!lane->closing)
        psc_lane_retire(lane);
}

/* ---- messages that arrive before the lane is installed ---- */

/* Returns true if messages of this lane are discarded, because its connection
 * has ended, even if a CLOSE_ACK is still to be sent on it. */
static bool lane_deaf(const psc_lane_t *lane)
{
    return lane->closing || (lane->conn && psc_conn_ended(lane->conn));
}

static void lane_keep_early(psc_lane_t *lane, const psc_am_t *am)
{
    if (!psc_early_keep(lane, am))
        psc_lane_fail(lane, PSC_ERR_NO_MEMORY);
}

void psc_lane_replay(psc_lane_t *lane)
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

/* A frame with an id from PSC_WIRE_MATCHED on is made by the fabric; a peer
 * must not send one. */
static psc_status_t lane_am_recv(psc_ep_t *ep, const psc_am_t *am)
{
    if (am->id < PSC_WIRE_MATCHED)
        return lane_deliver(ep, am);
    psc_lane_break(lane_of(ep), PSC_ERR_PROTOCOL);
    return PSC_OK;
}

/* Deliver a tagged message as the active message that corresponds to it. */
static void lane_tag_goes_on(psc_ep_t *ep, uint64_t bits, uint8_t id,
                             const void *payload, size_t len)
{
    const psc_conn_t *conn = lane_of(ep)->conn;
    psc_wire_eager_t wire = {
        .credit = conn ? conn->flow.limit : 0, /* unchanged */
        .tag = (uint32_t)(bits & PSC_TAG_MASK),
        .context = (uint16_t)(bits >> PSC_TAG_CONTEXT_SHIFT),
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

/* ---- header first ---- */

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
    else if (len <= PSC_EARLY_MAX)
        psc_landing_bounce(&lane->incoming, header, dest_p);
    dest_p->cookie = lane->conn;
}

/* End a payload that began before the lane was installed; it may be installed
 * now. */
static psc_status_t lane_end_early(psc_lane_t *lane)
{
    psc_incoming_t *in = &lane->incoming;
    psc_am_t am = psc_incoming_bounced(in);
    psc_status_t status = PSC_OK;

    if (in->kind != PSC_INCOMING_BOUNCE)
        return PSC_OK;
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

/* ---- events ---- */

static void lane_ep_up(psc_ep_t *ep)
{
    psc_lane_t *lane = lane_of(ep);

    if (lane->state == PSC_LANE_CONNECTING)
        psc_lane_state_set(lane, PSC_LANE_UP);
}

static void lane_ep_failed(psc_ep_t *ep, psc_status_t status,
                           const char *reason)
{
    psc_lane_t *lane = lane_of(ep);

    snprintf(lane->reason, sizeof lane->reason, "%s", reason);
    psc_lane_fail(lane, status);
    psc_lane_fail_conn(lane);
}

static void lane_log(psc_iface_t *iface, int level, const char *line)
{
    psc_iface_slot_t *slot = iface->user;

    psc_notices_log(&slot->worker->notices, level, line);
}

static void lane_holding(psc_iface_t *iface, int holding)
{
    psc_iface_slot_t *slot = iface->user;

    psc_notices_hold(&slot->worker->notices, holding ? 1 : -1);
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
};
