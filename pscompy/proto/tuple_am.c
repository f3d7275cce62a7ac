#include "tuple.h"

#include <stdlib.h>
#include <string.h>

#include "../core/conn.h"
#include "../core/finish.h"
#include "credit.h"
#include "message.h"
#include "rndv.h"
#include "protocol.h"

/* The permission for the peer to put a message into a receive. Its index in
 * `grants` is the entry by which ADVERTISE names the receive. */
typedef struct grant {
    /* generation of the receive; 0: the grant is not in use */
    uint64_t generation;
    uint64_t match, ignore, len;
    /* the advertised receive; NULL after it was withdrawn */
    psc_exposed_t *recv;
    bool conceal_due;
    bool asked; /* `recv` waits for the answer to CONCEAL */
} grant_t;

/* A receive that the peer advertises. Its index in `advertised` is the entry by
 * which ADVERTISE names the receive. */
typedef struct seen_recv {
    /* the receive; its generation is 0 if the entry is not in use */
    psc_advertised_t recv;
    uint64_t len;
    bool concealed_due; /* the answer CONCEALED is to be sent */
    uint8_t key_len;
    uint8_t key[PSC_RKEY_MAX];
} advertised_t;

struct psc_tuple_am {
    grant_t grants[PSC_EXPOSED_MAX];
    uint64_t permitted; /* sum of `len` of all grants that are in use */
    uint64_t generation; /* generation of the last grant */
    uint64_t seen; /* latest psc_position_t to report to the peer */
    uint64_t acked; /* psc_position_t that was last reported to the peer */
    advertised_t advertised[PSC_EXPOSED_MAX];
    uint64_t peer_generation, peer_seen;
};

/* ---- a connection ---- */

static psc_conn_t *am_conn(psc_ep_t *ep)
{
    return ((psc_lane_t *)ep->user)->conn;
}

static psc_tuple_am_t *am_make(psc_conn_t *conn)
{
    if (!conn->tuple_am)
        conn->tuple_am = calloc(1, sizeof *conn->tuple_am);
    return conn->tuple_am;
}

bool psc_tuple_am_begin(psc_conn_t *conn)
{
    const psc_iface_attr_t *attr = &psc_conn_main_lane(conn)->slot->attr;

    return conn->worker->config.tuple_am && attr->caps & PSC_CAP_PUT_AM &&
           am_make(conn);
}

void psc_tuple_am_end(psc_conn_t *conn)
{
    if (conn->tuple_am)
        conn->lost.replay_due = false;
    free(conn->tuple_am);
    conn->tuple_am = NULL;
}

/* ---- receiving ---- */

/* Returns a grant (the peer's right to put one message into a receive) that is
 * not in use, for a message of at most `len` bytes. Returns NULL if all are in
 * use, if all grants together would allow more than PSC_PLACES_MAX bytes, or
 * if the messages without a receive fill PSP_UNEXPECTED_MAX. */
static grant_t *grant_unused(psc_conn_t *conn, uint64_t len)
{
    psc_tuple_am_t *am = conn->tuple_am;

    if (am->permitted + len > PSC_PLACES_MAX ||
        !psc_budget_left(&conn->worker->budget))
        return NULL;
    for (uint32_t i = 0; i < PSC_EXPOSED_MAX; i++) {
        if (am->grants[i].generation == 0)
            return &am->grants[i];
    }
    return NULL;
}

/* Returns the grant of this entry, or NULL if the generation is another one.
 */
static grant_t *grant_find(psc_tuple_am_t *am, uint32_t entry,
                           uint64_t generation)
{
    if (!am || entry >= PSC_EXPOSED_MAX || generation == 0 ||
        am->grants[entry].generation != generation)
        return NULL;
    return &am->grants[entry];
}

static void grant_end(psc_tuple_am_t *am, grant_t *grant)
{
    am->permitted -= grant->len;
    *grant = (grant_t){0};
}

/* Packs the key by which the peer puts a message into the receive. */
static psc_status_t am_key(psc_conn_t *conn, psc_exposed_t *recv,
                           uint8_t *packed, size_t *len_p)
{
    psc_req_t *req = psc_container_of(recv, psc_bulk_t, record.advert)->req;
    psc_keyed_t keyed = {conn, recv->buffer, req->bulk->mem,
                         req->bulk->keys.key};
    psc_status_t status = psc_rndv_pack_key(&keyed, psc_conn_main_lane(conn),
                                            NULL, packed, len_p);

    req->remote_writable = status == PSC_OK;
    return status;
}

/* Sends ADVERTISE with the key. CONCEALs that are due are sent before it; see
 * tuple.h. */
static psc_status_t am_show(psc_conn_t *conn, psc_exposed_t *recv,
                            psc_wire_advertise_t *wire)
{
    uint8_t packed[sizeof(psc_wire_key_t) + PSC_RKEY_MAX];
    size_t len = 0;
    psc_status_t status;

    psc_tuple_am_flush(conn);
    if (conn->lost.replay_due)
        return PSC_ERR_NO_RESOURCE;
    status = am_key(conn, recv, packed, &len);
    if (status != PSC_OK)
        return status;
    return psc_credit_send(conn, PSC_WIRE_ADVERTISE, wire, sizeof *wire,
                           packed + sizeof(psc_wire_key_t),
                           len - sizeof(psc_wire_key_t));
}

static uint64_t am_longest(psc_conn_t *conn)
{
    uint64_t max_put = psc_conn_main_lane(conn)->slot->attr.max_put;

    return max_put < PSC_PLACE_MAX ? max_put : PSC_PLACE_MAX;
}

static psc_status_t am_advertise(psc_ep_t *ep, psc_exposed_t *recv,
                                 uint64_t seen)
{
    psc_conn_t *conn = am_conn(ep);
    psc_tuple_am_t *am = conn->tuple_am;
    uint64_t most = am_longest(conn);
    uint64_t len = recv->buffer.len < most ? recv->buffer.len : most;
    grant_t *grant = grant_unused(conn, len);
    psc_wire_advertise_t wire = {.generation = am->generation + 1,
                                 .match = recv->match,
                                 .ignore = recv->ignore,
                                 .len = len,
                                 .seen = seen};
    psc_status_t status;

    if (!grant)
        return PSC_ERR_NO_RESOURCE;
    recv->entry = wire.entry = (uint32_t)(grant - am->grants);
    status = am_show(conn, recv, &wire);
    if (status != PSC_OK)
        return status;
    am->generation++;
    am->seen = am->acked = seen;
    am->permitted += len;
    *grant = (grant_t){.generation = wire.generation,
                       .match = recv->match,
                       .ignore = recv->ignore,
                       .len = len,
                       .recv = recv};
    return PSC_OK;
}

static void am_due(psc_conn_t *conn)
{
    conn->lost.replay_due = true;
    psc_conn_mark_busy(conn);
}

static void am_conceal_due(psc_conn_t *conn, grant_t *grant, uint64_t seen)
{
    conn->tuple_am->seen = seen;
    if (conn->state == PSC_CONN_UP && !conn->closing.received) {
        grant->conceal_due = true;
        am_due(conn);
    }
}

void psc_tuple_am_ask(psc_conn_t *conn, psc_exposed_t *recv, uint64_t seen)
{
    grant_t *grant = &conn->tuple_am->grants[recv->entry];

    grant->asked = true;
    am_conceal_due(conn, grant, seen);
}

static psc_status_t am_conceal(psc_ep_t *ep, psc_exposed_t *recv, uint64_t seen)
{
    psc_conn_t *conn = am_conn(ep);
    psc_tuple_am_t *am = conn->tuple_am;
    grant_t *grant = &am->grants[recv->entry];

    grant->recv = NULL;
    am_conceal_due(conn, grant, seen);
    return PSC_OK;
}

/* Returns the grant of this message, or NULL if there is none. */
static grant_t *grant_placed(psc_conn_t *conn, const psc_wire_placed_t *wire)
{
    uint64_t bits =
        psc_match_bits(wire->eager.context, (int32_t)wire->eager.tag);
    grant_t *grant = grant_find(conn->tuple_am, wire->entry, wire->generation);

    return grant && wire->len <= grant->len &&
                   ((bits ^ grant->match) & ~grant->ignore) == 0
               ? grant
               : NULL;
}

/* The peer had put a message into the receive before CONCEAL reached it. But
 * the receive was cancelled, or is to get another message, so the message of
 * the peer is requeued, as if it arrived now. */
static psc_status_t am_requeue(psc_req_t *req)
{
    psc_status_t status =
        psc_requeue_message(psc_req_worker(req), req->context,
                            &req->head.result, psc_req_iov(req), req->n_iov);

    if (status == PSC_OK)
        psc_recv_returned(req);
    return status;
}

psc_status_t psc_tuple_am_placed_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_placed_t *wire = am->header;
    grant_t *grant = grant_placed(lane->conn, wire);
    psc_exposed_t *recv = grant ? grant->recv : NULL;
    psc_req_t *req;
    bool asked;

    if (am->len > 0 || !recv)
        return PSC_ERR_PROTOCOL;
    grant_end(lane->conn->tuple_am, grant);
    req = psc_tuple_req(recv);
    asked = req->stage == PSC_STAGE_LANDING;
    recv->taken(recv,
                psc_match_bits(wire->eager.context, (int32_t)wire->eager.tag),
                wire->len);
    if (asked)
        return am_requeue(req);
    req->remote_writable = false;
    recv->landed(recv, PSC_OK);
    return PSC_OK;
}

psc_status_t psc_tuple_am_concealed_arrived(psc_lane_t *lane,
                                            const psc_am_t *am)
{
    const psc_wire_conceal_t *wire = am->header;
    psc_tuple_am_t *tuple = lane->conn->tuple_am;
    grant_t *grant = grant_find(tuple, wire->entry, wire->generation);
    psc_exposed_t *recv = grant ? grant->recv : NULL;

    if (am->len > 0 || !grant || grant->conceal_due || (recv && !grant->asked))
        return PSC_ERR_PROTOCOL;
    grant_end(tuple, grant);
    if (recv)
        psc_recv_returned(psc_tuple_req(recv));
    return PSC_OK;
}

/* ---- sending ---- */

/* Receives are advertised only over a connection of one lane, because the
 * messages that are due would otherwise have to be told apart from those of
 * replay.c. A side that claims no receives answers CONCEAL all the same,
 * because the receive does not end before the answer. */
psc_status_t psc_tuple_am_advertise_arrived(psc_lane_t *lane,
                                            const psc_am_t *am)
{
    const psc_wire_advertise_t *wire = am->header;
    psc_tuple_am_t *tuple = lane->conn->tuple_am;
    advertised_t *seen_recv;

    if (lane->among)
        return PSC_ERR_PROTOCOL;
    tuple = am_make(lane->conn);
    if (!tuple)
        return PSC_ERR_NO_MEMORY;
    if (am->len == 0 || am->len > PSC_RKEY_MAX ||
        wire->entry >= PSC_EXPOSED_MAX || wire->len > PSC_PLACE_MAX ||
        tuple->advertised[wire->entry].recv.generation != 0 ||
        wire->generation <= tuple->peer_generation)
        return PSC_ERR_PROTOCOL;
    tuple->peer_generation = wire->generation;
    tuple->peer_seen = wire->seen;
    seen_recv = &tuple->advertised[wire->entry];
    *seen_recv = (advertised_t){.recv = {.entry = wire->entry,
                                         .generation = wire->generation,
                                         .match = wire->match,
                                         .ignore = wire->ignore},
                                .len = wire->len,
                                .key_len = (uint8_t)am->len};
    memcpy(seen_recv->key, am->payload, am->len);
    return PSC_OK;
}

psc_status_t psc_tuple_am_conceal_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_conceal_t *wire = am->header;
    psc_tuple_am_t *tuple = lane->conn->tuple_am;

    if (lane->among)
        return PSC_ERR_PROTOCOL;
    if (!tuple || am->len > 0 || wire->entry >= PSC_EXPOSED_MAX ||
        wire->generation == 0)
        return PSC_ERR_PROTOCOL;
    tuple->peer_seen = wire->seen;
    if (tuple->advertised[wire->entry].recv.generation != wire->generation)
        return PSC_OK; /* this side has claimed the receive before */
    tuple->advertised[wire->entry].concealed_due = true;
    am_due(lane->conn);
    return PSC_OK;
}

static uint32_t am_advertised(psc_ep_t *ep, psc_advertised_t *advertised,
                              uint64_t *seen_p)
{
    const psc_tuple_am_t *am = am_conn(ep)->tuple_am;
    uint32_t n = 0;

    *seen_p = am->peer_seen;
    for (uint32_t i = 0; i < PSC_EXPOSED_MAX; i++) {
        if (am->advertised[i].recv.generation != 0 &&
            !am->advertised[i].concealed_due)
            advertised[n++] = am->advertised[i].recv;
    }
    return n;
}

/* Puts the message into the receive. A key that cannot be used, or memory that
 * cannot be registered, leaves the message to the rendezvous. */
static psc_status_t am_put(psc_conn_t *conn, const advertised_t *seen_recv,
                           const psc_wire_placed_t *wire, const void *buffer,
                           psc_comp_t *comp)
{
    psc_lane_t *lane = psc_conn_main_lane(conn);
    psc_req_t *req = psc_container_of(comp, psc_bulk_t, comp)->req;
    psc_keyed_t keyed = psc_rndv_keyed(req);
    psc_rkey_t **key = &req->bulk->keys.key[lane->index];
    psc_status_t status = lane->slot->ops->rkey_unpack(lane->ep, seen_recv->key,
                                                       seen_recv->key_len, key);

    if (status == PSC_OK)
        status = psc_rndv_register_local(&keyed);
    if (status == PSC_OK)
        status = lane->slot->ops->put_am(
            lane->ep, PSC_WIRE_PLACED, wire, sizeof *wire, buffer, wire->len,
            req->bulk->mem[lane->index], *key, 0, comp);
    if (status >= 0)
        return status;
    psc_req_forget_lane(req, lane);
    return status == PSC_ERR_NO_RESOURCE ? status : PSC_ERR_UNSUPPORTED;
}

/* Returns PSC_ERR_UNSUPPORTED if the message is longer than its receive allows,
 * or cannot be put there. */
static psc_status_t am_claim(psc_ep_t *ep, const psc_advertised_t *advertised,
                             uint64_t bits, const void *buffer, size_t len,
                             psc_comp_t *comp)
{
    psc_conn_t *conn = am_conn(ep);
    advertised_t *seen_recv = &conn->tuple_am->advertised[advertised->entry];
    psc_flow_t before = conn->flow;
    psc_wire_placed_t wire = {
        .eager = {.tag = (uint32_t)(bits & PSC_TAG_MASK),
                  .context = (uint32_t)(bits >> PSC_EXPOSED_CONTEXT_SHIFT)},
        .entry = advertised->entry,
        .generation = advertised->generation,
        .len = len};
    psc_status_t status;

    if (len > seen_recv->len)
        return PSC_ERR_UNSUPPORTED;
    wire.eager.credit =
        psc_flow_stamp(&conn->flow, conn->worker->budget.window);
    status = am_put(conn, seen_recv, &wire, buffer, comp);
    if (status < 0)
        psc_flow_unstamp(&conn->flow, &before);
    else
        *seen_recv = (advertised_t){.len = 0};
    return status;
}

const psc_transport_ops_t psc_tuple_am_ops = {.expose = am_advertise,
                                              .conceal = am_conceal,
                                              .exposed = am_advertised,
                                              .claim = am_claim};

/* ---- messages that are due ---- */

static bool am_send_state(psc_conn_t *conn, psc_wire_id_t id, uint32_t entry,
                          uint64_t generation, uint64_t seen)
{
    psc_wire_conceal_t wire = {
        .entry = entry, .generation = generation, .seen = seen};

    return psc_credit_send(conn, id, &wire, sizeof wire, NULL, 0) == PSC_OK;
}

/* Only the last CONCEAL that is due tells the new `seen`; see tuple.h. */
static bool am_send_conceal(psc_conn_t *conn, grant_t *grant)
{
    psc_tuple_am_t *am = conn->tuple_am;
    bool last = true;

    grant->conceal_due = false;
    for (uint32_t i = 0; i < PSC_EXPOSED_MAX; i++)
        last = last && !am->grants[i].conceal_due;
    grant->conceal_due =
        !am_send_state(conn, PSC_WIRE_CONCEAL, (uint32_t)(grant - am->grants),
                       grant->generation, last ? am->seen : am->acked);
    if (last && !grant->conceal_due)
        am->acked = am->seen;
    return !grant->conceal_due;
}

bool psc_tuple_am_flush(psc_conn_t *conn)
{
    psc_tuple_am_t *am = conn->tuple_am;
    bool moved = false;

    if (!am)
        return false;
    for (uint32_t i = 0; i < PSC_EXPOSED_MAX; i++) {
        grant_t *grant = &am->grants[i];
        advertised_t *seen_recv = &am->advertised[i];

        if (grant->conceal_due) {
            if (!am_send_conceal(conn, grant))
                return moved;
            moved = true;
        }
        if (seen_recv->concealed_due) {
            if (!am_send_state(conn, PSC_WIRE_CONCEALED, i,
                               seen_recv->recv.generation, 0))
                return moved;
            *seen_recv = (advertised_t){.len = 0};
            moved = true;
        }
    }
    conn->lost.replay_due = false;
    return moved;
}
