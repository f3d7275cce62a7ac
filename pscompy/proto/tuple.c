#include "tuple.h"

#include <stdlib.h>

#include "../core/finish.h"
#include "../core/memory/memory.h"
#include "match.h"
#include "protocol.h"
#include "message.h"

/* After MISSES_MIN misses in a row (psc_tuple_pause_t) one chance to look for a
 * receive, or to advertise one, is skipped; after each further miss twice as
 * many chances, until MISSES_MAX misses. */
#define MISSES_MIN 8u
#define MISSES_MAX 13u

/* ---- pauses ---- */

static void pause_missed(psc_tuple_pause_t *pause)
{
    if (pause->misses < MISSES_MAX)
        pause->misses++;
    if (pause->misses >= MISSES_MIN)
        pause->skips = (uint8_t)(1u << (pause->misses - MISSES_MIN));
}

static bool pause_skips(psc_tuple_pause_t *pause)
{
    if (pause->skips == 0)
        return false;
    pause->skips--;
    return true;
}

static psc_tuple_pause_t *tuple_advertises(const psc_req_t *req)
{
    return &psc_tuple_bucket(psc_req_source(req)->tuple, req->context,
                             req->head.result.tag)
                ->advertise;
}

/* ---- a connection ---- */

/* Returns true if receives may be advertised. A message that is copied into an
 * advertised receive is ordered on one lane only: FRAGs on another lane could
 * overtake it. A scheme that the user has demanded is used for all long
 * messages. */
static bool tuple_fits(psc_conn_t *conn)
{
    return conn->worker->config.tuple_min != 0 && conn->n_lanes == 1 &&
           !conn->matches && conn->params.scheme == PSC_RNDV_AUTO;
}

/* Returns the operations by which receives are advertised and claimed: those of
 * the transport, or those by messages; NULL if there are none. */
static const psc_transport_ops_t *tuple_ops(psc_conn_t *conn)
{
    const psc_iface_slot_t *slot = psc_conn_main_lane(conn)->slot;

    if (!tuple_fits(conn))
        return NULL;
    if (slot->attr.caps & PSC_CAP_EXPOSE)
        return slot->ops;
    return psc_tuple_am_begin(conn) ? &psc_tuple_am_ops : NULL;
}

static void tuple_limit(psc_conn_t *conn)
{
    conn->tuple->min = conn->worker->config.tuple_min;
    /* to register memory for a put takes longer than an eager message */
    if (conn->tuple_am && conn->tuple->min <= conn->params.eager_max)
        conn->tuple->min = conn->params.eager_max + 1;
    if (conn->params.zcopy_min > conn->tuple->min)
        conn->params.zcopy_min = conn->tuple->min;
    conn->hands_from =
        conn->tuple->min < UINT32_MAX ? (uint32_t)conn->tuple->min : UINT32_MAX;
}

/* If there is no memory for the psc_tuple_t, no receive of the connection is
 * advertised. */
static void tuple_begin(psc_conn_t *conn)
{
    const psc_transport_ops_t *ops = tuple_ops(conn);

    if (!ops || !(conn->tuple = calloc(1, sizeof *conn->tuple)))
        return;
    conn->tuple->ops = ops;
    conn->hands_out = &psc_tuple;
    conn->positions = &conn->tuple->positions;
    conn->looks_first = conn->tuple_am != NULL;
    tuple_limit(conn);
}

static void tuple_end(psc_conn_t *conn)
{
    psc_tuple_am_end(conn);
    free(conn->tuple);
    conn->tuple = NULL;
    conn->hands_out = NULL;
    conn->positions = NULL;
}

/* ---- receiving ---- */

static bool tuple_takes(const psc_req_t *req)
{
    const psc_conn_t *conn = psc_req_source(req);

    return conn->state == PSC_CONN_UP && req->n_iov == 1 &&
           psc_req_total(req) >= conn->tuple->min &&
           !(req->head.flags & PSC_FLAG_NO_BUFFER);
}

/* A long message has arrived otherwise than into an advertised receive:
 * advertise receives for such messages again (psc_tuple_bucket_t.advertise). */
static void tuple_came(psc_conn_t *conn, uint32_t context, int32_t tag)
{
    static const psc_tuple_pause_t none;

    psc_tuple_bucket(conn->tuple, context, tag)->advertise = none;
    psc_tuple_bucket(conn->tuple, context, PSC_ANY_TAG)->advertise = none;
}

/* Returns true if the receive is not to be advertised, because PSC_EXPOSED_MAX
 * receives are advertised, or because its bucket pauses
 * (psc_tuple_bucket_t.advertise). Each call counts towards the end of the
 * pause. */
static bool tuple_pauses(const psc_req_t *req)
{
    return psc_req_source(req)->tuple->n_advertised == PSC_EXPOSED_MAX ||
           pause_skips(tuple_advertises(req));
}

static psc_position_t tuple_seen(const psc_conn_t *conn)
{
    return psc_position(conn->flow.got, conn->rts_got);
}

/* End a receive or send whose bytes nobody copies any more. If all bytes are in
 * position, it does no harm that the connection has ended meanwhile: the peer
 * has completed its request, and may have closed. */
static void tuple_finish(psc_req_t *req, psc_status_t status)
{
    req->bulk->inflight = 0;
    if (req->stage == PSC_STAGE_ENDING && status != PSC_OK &&
        status != PSC_ERR_TRUNCATED)
        psc_access_settle(req);
    else
        psc_req_finish(req, status);
}

static void tuple_landed(psc_exposed_t *advert, psc_status_t status)
{
    psc_req_t *req = psc_tuple_req(advert);

    if (status == PSC_OK) {
        psc_count(psc_req_conn(req), PSC_COUNTER_received_messages, 1);
        psc_count(psc_req_conn(req), PSC_COUNTER_received_bytes,
                  req->bulk->len);
        status = req->head.result.status;
    }
    tuple_finish(req, status);
}

/* The peer cannot put a message into the receive any more. */
static void tuple_hidden(psc_req_t *req)
{
    psc_req_forget_lane(req, psc_conn_main_lane(psc_req_source(req)));
    req->remote_writable = false;
}

/* Set the result of a receive that the peer has claimed. */
static void tuple_result(psc_req_t *req, uint64_t bits, uint64_t len)
{
    psc_result_t *result = &req->head.result;

    psc_count(psc_req_conn(req), PSC_COUNTER_tuple_taken, 1);
    if (req->stage == PSC_STAGE_ENDING)
        return;
    psc_conn_sign(psc_req_conn(req), result);
    result->order = ++psc_req_worker(req)->matching.clock;
    result->tag = (int32_t)(bits & PSC_TAG_MASK);
    result->nbytes = len;
    result->status = len > psc_req_total(req) ? PSC_ERR_TRUNCATED : PSC_OK;
    req->bulk->len = len < psc_req_total(req) ? len : psc_req_total(req);
}

/* The peer has claimed an advertised receive for a message. */
static void tuple_taken(psc_exposed_t *advert, uint64_t bits, uint64_t len)
{
    psc_req_t *req = psc_tuple_req(advert);

    psc_match_met(req);
    tuple_result(req, bits, len);
    psc_requeue_met(req);
}

static bool tuple_offer(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_source(req);
    psc_lane_t *lane = psc_conn_main_lane(conn);
    int32_t tag = req->head.result.tag;
    psc_exposed_t *record;

    if (tuple_pauses(req) || !psc_req_extend(req))
        return false;
    record = &req->bulk->record.advert;
    *record = (psc_exposed_t){
        .match = psc_match_bits(req->context, tag == PSC_ANY_TAG ? 0 : tag),
        .ignore = tag == PSC_ANY_TAG ? PSC_TAG_MASK : 0,
        .buffer = *psc_req_piece(req),
        .taken = tuple_taken,
        .landed = tuple_landed};
    if (conn->tuple->ops->expose(lane->ep, record, tuple_seen(conn)) !=
        PSC_OK) {
        tuple_hidden(req);
        return false;
    }
    conn->tuple->n_advertised++;
    psc_count(conn, PSC_COUNTER_tuple_exposed, 1);
    return true;
}

static bool tuple_yield(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_source(req);

    if (conn->tuple->ops->conceal(psc_conn_main_lane(conn)->ep,
                                  psc_req_shown(req),
                                  tuple_seen(conn)) != PSC_OK)
        return false;
    conn->tuple->n_advertised--;
    pause_missed(tuple_advertises(req));
    tuple_hidden(req);
    return true;
}

static psc_status_t tuple_recall(psc_req_t *req)
{
    if (!req->remote_writable)
        return tuple_yield(req) ? PSC_OK : PSC_ERR_INVALID;
    psc_tuple_am_ask(psc_req_source(req), psc_req_shown(req),
                     tuple_seen(psc_req_source(req)));
    return PSC_INPROGRESS;
}

static void tuple_lost(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_source(req);

    conn->tuple->n_advertised--;
    tuple_advertises(req)->misses = 0;
    psc_req_set_unexp(req, NULL);
    /* the transport calls `landed`, unless the peer writes with a key */
    req->bulk->inflight = !req->remote_writable;
    psc_req_stage_set(req, PSC_STAGE_LANDING);
    psc_req_attach(req, conn);
}

/* ---- sending ---- */

/* Returns true if a receiver that has matched all messages up to the position
 * `seen` (psc_position_t) has matched those up to `position`, too. If a
 * position is so old that the counts have wrapped around, the function may
 * return false although they were matched. */
static bool tuple_covers(psc_position_t seen, psc_position_t position)
{
    return (int32_t)((uint32_t)seen - (uint32_t)position) >= 0 &&
           (int32_t)((uint32_t)(seen >> 32) - (uint32_t)(position >> 32)) >= 0;
}

/* Returns a position (psc_position_t) that is not before the last message which
 * fits this receive and was not sent into an advertised receive. */
static psc_position_t tuple_need(const psc_req_t *req,
                                 const psc_advertised_t *recv)
{
    const psc_conn_t *conn = psc_req_conn(req);

    if (recv->ignore)
        return psc_position(conn->flow.sent, conn->rts_sent);
    return conn->positions
        ->last[psc_position_bucket(req->context, req->head.result.tag)];
}

static const psc_advertised_t *tuple_first(const psc_advertised_t *advertised,
                                           uint32_t n, uint64_t bits)
{
    const psc_advertised_t *first = NULL;

    for (uint32_t i = 0; i < n; i++) {
        if (((advertised[i].match ^ bits) & ~advertised[i].ignore) == 0 &&
            (!first || advertised[i].generation < first->generation))
            first = &advertised[i];
    }
    return first;
}

static void tuple_placed(psc_comp_t *comp, psc_status_t status)
{
    tuple_finish(psc_container_of(comp, psc_bulk_t, comp)->req, status);
}

static psc_status_t tuple_claim(psc_req_t *req, const psc_advertised_t *recv,
                                uint64_t bits)
{
    psc_conn_t *conn = psc_req_conn(req);
    psc_status_t status;

    req->bulk->comp.func = tuple_placed;
    status = conn->tuple->ops->claim(psc_conn_main_lane(conn)->ep, recv, bits,
                                     psc_req_piece(req)->base,
                                     psc_req_total(req), &req->bulk->comp);
    if (status == PSC_ERR_NO_RESOURCE)
        psc_count(conn, PSC_COUNTER_back_pressure, 1);
    if (status < 0)
        return status;
    psc_count(conn, PSC_COUNTER_tuple_placed, 1);
    psc_count(conn, PSC_COUNTER_sent_messages, 1);
    psc_count(conn, PSC_COUNTER_sent_bytes, psc_req_total(req));
    psc_count(conn, PSC_COUNTER_copied_bytes, psc_req_total(req));
    req->bulk->inflight = status == PSC_INPROGRESS;
    psc_req_stage_set(req, PSC_STAGE_PLACING);
    if (status == PSC_OK)
        psc_req_finish(req, PSC_OK);
    return PSC_INPROGRESS;
}

static psc_status_t tuple_otherwise(psc_req_t *req, psc_counter_t why)
{
    psc_count(psc_req_conn(req), why, 1);
    return PSC_ERR_UNSUPPORTED;
}

static psc_status_t tuple_look(psc_req_t *req, psc_tuple_bucket_t *bucket)
{
    const psc_transport_ops_t *ops = psc_req_conn(req)->tuple->ops;
    uint64_t bits = psc_match_bits(req->context, req->head.result.tag);
    psc_advertised_t advertised[PSC_EXPOSED_MAX];
    const psc_advertised_t *recv;
    psc_position_t seen = 0;
    uint32_t n = ops->exposed(psc_conn_main_lane(psc_req_conn(req))->ep,
                              advertised, &seen);
    psc_status_t status;

    recv = tuple_first(advertised, n, bits);
    if (recv && tuple_covers(seen, tuple_need(req, recv))) {
        bucket->look.misses = 0;
        status = tuple_claim(req, recv, bits);
        if (status != PSC_ERR_UNSUPPORTED)
            return status;
        recv = NULL; /* the receive cannot be claimed for this message */
    }
    if (n > 0) /* looking at a peer that advertises nothing costs no time */
        pause_missed(&bucket->look);
    return tuple_otherwise(req, recv ? PSC_COUNTER_tuple_unseen
                                     : PSC_COUNTER_tuple_none);
}

static bool tuple_may(const psc_req_t *req)
{
    const psc_tuple_t *tuple = psc_req_conn(req)->tuple;

    return tuple && psc_req_total(req) >= tuple->min && req->n_iov == 1;
}

/* Look for a receive that the peer advertises, and claim it for this
 * message. */
static psc_status_t tuple_start(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_conn(req);
    psc_tuple_bucket_t *bucket;

    bucket = psc_tuple_bucket(conn->tuple, req->context, req->head.result.tag);
    if (pause_skips(&bucket->look))
        return tuple_otherwise(req, PSC_COUNTER_tuple_skipped);
    return tuple_look(req, bucket);
}

static void tuple_limits(psc_conn_t *conn)
{
    if (conn->tuple)
        tuple_limit(conn);
}

const psc_proto_t psc_tuple = {
    .name = "tuple",
    .messages =
        (const psc_proto_message_t[]){
            {PSC_WIRE_ADVERTISE, sizeof(psc_wire_advertise_t),
             psc_tuple_am_advertise_arrived},
            {PSC_WIRE_CONCEAL, sizeof(psc_wire_conceal_t),
             psc_tuple_am_conceal_arrived},
            {PSC_WIRE_CONCEALED, sizeof(psc_wire_conceal_t),
             psc_tuple_am_concealed_arrived},
            {PSC_WIRE_PLACED, sizeof(psc_wire_placed_t),
             psc_tuple_am_placed_arrived},
            {0}},
    .may = tuple_may,
    .start = tuple_start,
    .came = tuple_came,
    .takes = tuple_takes,
    .offer = tuple_offer,
    .yield = tuple_yield,
    .recall = tuple_recall,
    .lost = tuple_lost,
    .kept = PSC_COUNTER_tuple_hidden,
    .handed = "",
    .begin = tuple_begin,
    .limits = tuple_limits,
    .flush = psc_tuple_am_flush,
    .conn_destroyed = tuple_end,
};
