#include "replay.h"

#include <stdlib.h>
#include <string.h>

#include "../core/conn.h"
#include "../core/lane.h"
#include "credit.h"
#include "rail.h"

/* A longer buffer is shrunk to this size when few bytes are kept. */
#define REPLAY_IDLE (4 * PSC_REPLAY_ACK)

/* A message in the retransmit queue: this head, the message's header, its
 * payload. */
typedef struct retransmit {
    uint32_t len; /* bytes of the payload */
    uint8_t id;
    uint8_t header_len;
    _Alignas(8) uint8_t bytes[];
} retransmit_t;

struct psc_replay {
    psc_ep_t ep; /* stands for the main lane's endpoint in conn->out */
    psc_conn_t *conn;
    /* ---- sending ---- */
    /* The retransmit queue: messages at the offsets `first` to `end` of
     * `buffer`, of `capacity` bytes. Those from `next` on were not sent over
     * the present main lane. */
    uint8_t *buffer;
    size_t capacity, first, next, end;
    uint32_t sent; /* number of the last ordered message that was sent */
    /* number of the last message that has left the retransmit queue */
    uint32_t dropped;
    uint32_t acked; /* number of the last message that the peer has delivered */
    uint32_t turn; /* number of this side's last RESUME */
    bool resume_due;
    /* ---- arriving ---- */
    uint8_t from; /* index of the lane over which messages arrive in order */
    /* number of the last ordered message that has arrived over the lane
     * `from` */
    uint32_t at;
    uint32_t delivered; /* number of the last message that was delivered */
    uint32_t peers_turn; /* number of the last RESUME that has arrived */
    uint32_t unacked; /* bytes of delivered messages since the last SEEN */
    bool ack_due; /* SEEN is to be sent */
};

static void replay_due(psc_conn_t *conn)
{
    conn->lost.replay_due = true;
    psc_conn_mark_busy(conn);
}

/* ---- the retransmit queue ---- */

static size_t retransmit_size(uint8_t header_len, uint64_t len)
{
    return (sizeof(retransmit_t) + header_len + len + 7) & ~(size_t)7;
}

static retransmit_t *retransmit_at(const psc_replay_t *replay, size_t offset)
{
    return (retransmit_t *)(void *)(replay->buffer + offset);
}

static size_t retransmit_size_at(const psc_replay_t *replay, size_t offset)
{
    const retransmit_t *queued = retransmit_at(replay, offset);

    return retransmit_size(queued->header_len, queued->len);
}

/* Move the retransmit queue to the start of a buffer of `capacity` bytes. */
static bool retransmit_move(psc_replay_t *replay, size_t capacity)
{
    size_t queued = replay->end - replay->first;
    uint8_t *buffer;

    if (queued > 0)
        memmove(replay->buffer, replay->buffer + replay->first, queued);
    replay->next -= replay->first;
    replay->end = queued;
    replay->first = 0;
    if (capacity == replay->capacity)
        return true;
    buffer = realloc(replay->buffer, capacity);
    if (!buffer)
        return false;
    replay->buffer = buffer;
    replay->capacity = capacity;
    return true;
}

/* Make room behind the retransmit queue. The buffer is at most half full when
 * they are moved, so that each is moved once on average. Returns false if the
 * message must wait. */
static bool retransmit_reserve(psc_replay_t *replay, size_t size)
{
    size_t queued = replay->end - replay->first, capacity = replay->capacity;

    if (queued + size > PSC_REPLAY_MAX)
        return false;
    if (replay->capacity - replay->end >= size)
        return true;
    while (capacity < 2 * (queued + size))
        capacity = capacity ? 2 * capacity : 4096;
    return retransmit_move(replay, capacity);
}

/* Keep a message that was sent. */
static void retransmit_add(psc_replay_t *replay, uint8_t id, const void *header,
                           uint8_t header_len, const psc_iov_t *iov,
                           size_t n_iov)
{
    retransmit_t *queued = retransmit_at(replay, replay->end);
    uint8_t *to = queued->bytes + header_len;

    memcpy(queued->bytes, header, header_len);
    for (size_t i = 0; i < n_iov; i++) {
        if (iov[i].len)
            memcpy(to, iov[i].base, iov[i].len);
        to += iov[i].len;
    }
    queued->id = id;
    queued->header_len = header_len;
    queued->len = (uint32_t)(to - queued->bytes - header_len);
    replay->end += retransmit_size(header_len, queued->len);
    replay->next = replay->end;
    replay->sent++;
}

/* Drop the messages that the peer has acknowledged. One that is still to be
 * sent over the present main lane stays, because the receiver counts it. */
static void retransmit_drop(psc_replay_t *replay)
{
    while (replay->dropped != replay->acked && replay->first < replay->next) {
        replay->first += retransmit_size_at(replay, replay->first);
        replay->dropped++;
    }
    if (replay->first == replay->end)
        replay->first = replay->next = replay->end = 0;
    if (replay->capacity > REPLAY_IDLE &&
        replay->end - replay->first <= REPLAY_IDLE / 4)
        retransmit_move(replay, REPLAY_IDLE);
}

/* ---- the operations of conn->out ---- */

static bool replay_counts(uint8_t id)
{
    return id != PSC_WIRE_CREDIT && id != PSC_WIRE_SEEN &&
           id != PSC_WIRE_RESUME;
}

static psc_status_t replay_pass_on(const psc_lane_t *lane, uint8_t id,
                                   const void *header, uint8_t header_len,
                                   const psc_iov_t *iov, size_t n_iov)
{
    const psc_outlet_t out = {lane->slot->ops, lane->ep};
    psc_status_t status;

    if (n_iov <= 1)
        status =
            psc_outlet_send(&out, &lane->slot->attr, id, header, header_len,
                            n_iov ? iov->base : NULL, n_iov ? iov->len : 0);
    else
        status = out.ops->am_bcopy(out.ep, id, header, header_len, iov, n_iov);
    /* a broken lane counts as full here: its loss is reported later */
    return status < 0 && status != PSC_ERR_INVALID ? PSC_ERR_NO_RESOURCE
                                                   : status;
}

static psc_status_t replay_am_bcopy(psc_ep_t *ep, uint8_t id,
                                    const void *header, uint8_t header_len,
                                    const psc_iov_t *iov, size_t n_iov)
{
    psc_replay_t *replay = psc_container_of(ep, psc_replay_t, ep);
    bool counts = replay_counts(id);
    uint64_t len = 0;
    psc_status_t status;

    if (replay->resume_due ? id != PSC_WIRE_RESUME
                           : counts && replay->next < replay->end)
        return PSC_ERR_NO_RESOURCE;
    /* after the connection's end nothing is sent again */
    if (!counts || psc_conn_ended(replay->conn))
        return replay_pass_on(replay->conn->main, id, header, header_len, iov,
                              n_iov);
    for (size_t i = 0; i < n_iov; i++)
        len += iov[i].len;
    if (!retransmit_reserve(replay, retransmit_size(header_len, len)))
        return PSC_ERR_NO_RESOURCE;
    status =
        replay_pass_on(replay->conn->main, id, header, header_len, iov, n_iov);
    if (status == PSC_OK)
        retransmit_add(replay, id, header, header_len, iov, n_iov);
    return status;
}

static psc_status_t replay_am_short(psc_ep_t *ep, uint8_t id,
                                    const void *header, uint8_t header_len,
                                    const void *payload, size_t len)
{
    psc_iov_t iov = {(void *)payload, len};

    return replay_am_bcopy(ep, id, header, header_len, &iov, len ? 1 : 0);
}

/* ---- the connection's begin and end ---- */

/* Returns true if the messages of any lost lane can be sent over another. */
static bool replay_possible(const psc_conn_t *conn)
{
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        if (!psc_lane_replaceable(conn->lanes[i]))
            return false;
    }
    return conn->n_lanes > 1;
}

static uint32_t replay_max_bcopy(const psc_lane_t *lane)
{
    size_t max = lane->slot->attr.max_bcopy;

    return max < UINT32_MAX ? (uint32_t)max : UINT32_MAX;
}

/* Limit the length of messages to what each lane takes, because any lane may
 * have to send them. */
static void replay_limit(psc_conn_t *conn)
{
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        uint32_t max = replay_max_bcopy(conn->lanes[i]);

        if (max < conn->max_bcopy)
            conn->max_bcopy = max;
    }
}

bool psc_replay_begin(psc_conn_t *conn)
{
    static const psc_transport_ops_t ops = {.am_short = replay_am_short,
                                            .am_bcopy = replay_am_bcopy};

    conn->max_bcopy = replay_max_bcopy(conn->main);
    if (!replay_possible(conn))
        return true;
    conn->replay = calloc(1, sizeof *conn->replay);
    if (!conn->replay)
        return false;
    replay_limit(conn);
    conn->replay->conn = conn;
    conn->out = (psc_outlet_t){&ops, &conn->replay->ep};
    return true;
}

void psc_replay_end(psc_conn_t *conn)
{
    if (conn->replay)
        free(conn->replay->buffer);
    free(conn->replay);
    conn->replay = NULL;
}

/* ---- another main lane ---- */

static psc_lane_t *replay_choose(const psc_conn_t *conn)
{
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        if (psc_lane_works(conn->lanes[i]))
            return conn->lanes[i];
    }
    return NULL;
}

void psc_replay_lost(psc_lane_t *lane)
{
    psc_conn_t *conn = lane->conn;
    psc_replay_t *replay = conn->replay;
    psc_lane_t *other;

    if (lane != conn->main)
        return;
    other = replay_choose(conn);
    if (!other) {
        psc_conn_lost(conn, lane->status);
        return;
    }
    conn->main = other;
    psc_lane_further(other, false);
    replay->turn++;
    replay->resume_due = true;
    replay->next = replay->first;
    /* SEEN replaces a CREDIT that was lost: CREDITs are not kept */
    replay->ack_due = true;
    replay_due(conn);
}

static psc_status_t replay_resume(psc_replay_t *replay)
{
    psc_wire_resume_t wire = {.turn = replay->turn,
                              .first = replay->dropped + 1};

    return psc_credit_send(replay->conn, PSC_WIRE_RESUME, &wire, sizeof wire,
                           NULL, 0);
}

static bool replay_next(psc_replay_t *replay)
{
    const retransmit_t *queued = retransmit_at(replay, replay->next);
    psc_iov_t iov = {(void *)(queued->bytes + queued->header_len), queued->len};

    if (replay_pass_on(replay->conn->main, queued->id, queued->bytes,
                       queued->header_len, &iov, 1) != PSC_OK)
        return false;
    replay->next += retransmit_size_at(replay, replay->next);
    psc_count(replay->conn, PSC_COUNTER_messages_again, 1);
    return true;
}

bool psc_replay_flush(psc_conn_t *conn)
{
    psc_replay_t *replay = conn->replay;
    bool moved = replay->resume_due, acking = replay->ack_due;

    if (replay->resume_due && replay_resume(replay) != PSC_OK)
        return false;
    replay->resume_due = false;
    while (replay->next < replay->end && replay_next(replay))
        moved = true;
    retransmit_drop(replay);
    if (replay->next < replay->end ||
        (acking && psc_replay_ack(conn) != PSC_OK))
        return moved;
    conn->lost.replay_due = false;
    return moved || acking;
}

psc_status_t psc_replay_ack(psc_conn_t *conn)
{
    psc_replay_t *replay = conn->replay;
    psc_wire_seen_t wire = {.number = replay->delivered};
    psc_status_t status =
        psc_credit_send(conn, PSC_WIRE_SEEN, &wire, sizeof wire, NULL, 0);

    if (status != PSC_OK)
        return status;
    replay->ack_due = false;
    replay->unacked = 0;
    return PSC_OK;
}

/* ---- arriving ---- */

bool psc_replay_direct(const psc_lane_t *lane, uint8_t id, const void *header)
{
    return !lane->conn->replay ||
           (id == PSC_WIRE_FRAG && !((const psc_wire_frag_t *)header)->ordered);
}

psc_status_t psc_replay_take(psc_lane_t *lane, const psc_am_t *am)
{
    psc_conn_t *conn = lane->conn;
    psc_replay_t *replay = conn->replay;

    if (!replay)
        return psc_lane_spare(lane) && am->id != PSC_WIRE_FRAG
                   ? PSC_ERR_PROTOCOL
                   : PSC_OK;
    if (am->id == PSC_WIRE_RESUME ||
        psc_replay_direct(lane, am->id, am->header))
        return PSC_OK;
    if (lane->index != replay->from)
        return PSC_ERR_PROTOCOL;
    if (!replay_counts(am->id))
        return PSC_OK;
    replay->at++;
    if ((int32_t)(replay->at - replay->delivered) <= 0)
        return PSC_INPROGRESS;
    replay->delivered = replay->at;
    replay->unacked += (uint32_t)retransmit_size(am->header_len, am->len);
    if (replay->unacked >= PSC_REPLAY_ACK && !replay->ack_due) {
        replay->ack_due = true;
        replay_due(conn);
    }
    return PSC_OK;
}

psc_status_t psc_replay_seen_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_seen_t *wire = am->header;
    psc_replay_t *replay = lane->conn->replay;

    if (!replay || am->len > 0 ||
        wire->number - replay->acked > replay->sent - replay->acked)
        return PSC_ERR_PROTOCOL;
    replay->acked = wire->number;
    retransmit_drop(replay);
    /* messages may have waited for room */
    if (!psc_work_empty(&lane->conn->work))
        psc_conn_mark_busy(lane->conn);
    return PSC_OK;
}

psc_status_t psc_replay_resume_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_resume_t *wire = am->header;
    psc_conn_t *conn = lane->conn;
    psc_replay_t *replay = conn->replay;
    psc_lane_t *before;

    if (!replay || am->len > 0)
        return PSC_ERR_PROTOCOL;
    if ((int32_t)(wire->turn - replay->peers_turn) <= 0) {
        psc_lane_useless(lane);
        return PSC_OK;
    }
    if ((int32_t)(wire->first - 1 - replay->delivered) > 0)
        return PSC_ERR_PROTOCOL;
    before = conn->lanes[replay->from];
    replay->peers_turn = wire->turn;
    replay->from = lane->index;
    replay->at = wire->first - 1;
    psc_lane_further(lane, false);
    psc_rail_met(lane);
    if (before != lane)
        psc_lane_useless(before);
    return PSC_OK;
}
