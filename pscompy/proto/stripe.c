#include "stripe.h"

#include <stdio.h>

#include "../core/lane.h"
#include "../core/types/request.h"
#include "pscompy/transport/kit/clock.h"

#define PIECE_MIN (64u << 10)
/* Least number of pieces of a message for each lane, unless they would be
 * shorter than PIECE_MIN. */
#define PIECES 16u
/* Weight of the older measurements of a lane's rate at each new one. */
#define DECAY 0.875
/* A piece is an outlier if it takes more than this many times the duration that
 * its lane's rate suggests. */
#define OUTLIER 4.0
/* A lane that is this many times slower than another gets no pieces. */
#define SLOWER 10.0
/* A lane that was not measured while the connection's lanes were given
 * WITHOUT_MAX bytes is tried with up to TRIES pieces. */
#define WITHOUT_MAX (512u << 20)
#define TRIES (2 * PSC_PIECES_MAX)

/* ---- pieces ---- */

bool psc_striped(const psc_req_t *req)
{
    return psc_req_conn(req)->n_lanes > 1 && !req->bulk->one_lane;
}

size_t psc_stripe_size(const psc_conn_t *conn, uint64_t len)
{
    uint64_t size = len / (PIECES * conn->n_lanes);

    if (size < PIECE_MIN)
        size = PIECE_MIN;
    return size < conn->params.fragment ? size : conn->params.fragment;
}

psc_piece_t *psc_stripe_piece(psc_lane_t *lane)
{
    for (uint32_t i = 0; i < PSC_PIECES_MAX; i++) {
        if (!lane->stripe.pieces[i].req)
            return &lane->stripe.pieces[i];
    }
    return NULL;
}

/* ---- rates ---- */

/* Returns the lane's rate in bytes per ns; 0 if it is not known. */
static double stripe_rate(const psc_stripe_t *stripe)
{
    return stripe->ns > 0 ? stripe->bytes / stripe->ns : 0;
}

bool psc_stripe_usable(const psc_lane_t *lane)
{
    return lane->state != PSC_LANE_FAILED &&
           !(lane->conn->lost.joining & 1u << lane->index);
}

/* Returns true if the lane may get pieces of a message that the lanes in
 * `barred` cannot move. */
static bool stripe_allowed(const psc_lane_t *lane, uint32_t barred)
{
    return psc_stripe_usable(lane) && !(barred & 1u << lane->index);
}

bool psc_stripe_possible(const psc_req_t *req)
{
    for (uint32_t i = 0; i < psc_req_conn(req)->n_lanes; i++) {
        if (stripe_allowed(psc_req_conn(req)->lanes[i], req->bulk->refused))
            return true;
    }
    return false;
}

static double stripe_fastest(const psc_conn_t *conn, uint32_t barred)
{
    double fastest = 0;

    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        double rate = stripe_rate(&conn->lanes[i]->stripe);

        if (stripe_allowed(conn->lanes[i], barred) && rate > fastest)
            fastest = rate;
    }
    return fastest > 0 ? fastest : 1;
}

/* Returns the lane's rate; `fastest`, the rate of the fastest lane, if the lane
 * was not measured yet. */
static double stripe_guess(const psc_stripe_t *stripe, double fastest)
{
    double rate = stripe_rate(stripe);

    return rate > 0 ? rate : fastest;
}

/* Returns the time that is counted for a piece. A piece that takes far longer
 * than the lane's rate suggests may have been held up by a retransmission; if
 * the next piece takes as long, the lane has become slow. */
static double stripe_time(psc_stripe_t *stripe, uint64_t len, int64_t taken)
{
    double rate = stripe_rate(stripe), most = OUTLIER * (double)len / rate;

    stripe->late = rate > 0 && (double)taken > most && !stripe->late;
    return stripe->late ? most : (double)taken;
}

/* Returns true if the lane was not measured for so long that it gets the next
 * pieces, whatever its rate was. */
static bool stripe_due(const psc_stripe_t *stripe)
{
    return stripe->without >= WITHOUT_MAX;
}

static void stripe_tried(psc_stripe_t *stripe)
{
    stripe->without = 0;
    stripe->tries = 0;
}

/* Add to the lane's rate the measurement that the lane has carried `len` bytes
 * in `taken` ns. */
static void stripe_carried(psc_stripe_t *stripe, uint64_t len, int64_t taken)
{
    double ns;

    if (stripe_due(stripe))
        stripe->bytes = stripe->ns = 0;
    ns = stripe_time(stripe, len, taken);
    stripe->bytes = DECAY * stripe->bytes + (double)len;
    stripe->ns = DECAY * stripe->ns + ns;
    stripe_tried(stripe);
}

/* Measure the lane's rate by a completed piece. The first of several pieces in
 * flight only fills the lane's buffers and is not measured; nor is a piece that
 * was refused or has failed (not `carried`), nor the one after that. The bytes
 * of all pieces that complete in one pass count as one measurement. */
static void stripe_measure(psc_stripe_t *stripe, size_t len, uint32_t pass,
                           bool carried)
{
    int64_t now = psc_clock_now();
    bool together = stripe->pass == pass;

    if (!together)
        stripe->timed = stripe->since != 0;
    if (carried && stripe->timed && together)
        stripe->bytes += (double)len;
    else if (carried && stripe->timed)
        stripe_carried(stripe, len, now - stripe->since);
    stripe->queued -= len;
    stripe->since = carried ? now : 0;
    stripe->pass = pass;
}

/* The lane gets a piece. If no other is in flight, and the last one did not
 * complete in this pass, the lane was idle, so the piece is not timed. */
static void stripe_begin(psc_stripe_t *stripe, uint32_t pass)
{
    if (stripe->queued == 0 && stripe->pass != pass)
        stripe->since = 0;
    stripe->full_at = 0;
}

/* The lane copies pieces into buffers of its own, and these are full. If they
 * were full before, the lane has carried since that moment as many bytes as it
 * has copied since then. */
static void stripe_full(psc_stripe_t *stripe)
{
    int64_t now = psc_clock_now();

    if (stripe->full_at && stripe->copied < PIECE_MIN)
        return;
    if (stripe->full_at)
        stripe_carried(stripe, stripe->copied, now - stripe->full_at);
    stripe->full_at = now;
    stripe->copied = 0;
}

/* No lane takes the next piece now. `full`: the lanes that have refused it, as
 * bits by their indices; the others may have been left out for a while, which
 * tells nothing of their rates. */
static void stripe_none_took(psc_conn_t *conn, uint32_t full)
{
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        if (full & 1u << i)
            stripe_full(&conn->lanes[i]->stripe);
        else
            conn->lanes[i]->stripe.full_at = 0;
    }
}

/* ---- the lane of a piece ---- */

static double stripe_end(const psc_stripe_t *stripe, double fastest, size_t len)
{
    return (double)(stripe->queued + len) / stripe_guess(stripe, fastest);
}

/* Returns true if the lane would finish the piece before the other one. */
static bool stripe_before(const psc_stripe_t *one, const psc_stripe_t *other,
                          double fastest, size_t len)
{
    double end = stripe_end(one, fastest, len);
    double others = stripe_end(other, fastest, len);

    return end < others || (end == others && one->given < other->given);
}

/* Returns when all lanes that can move the message would finish, if they shared
 * what is left of it. */
static double stripe_together(const psc_conn_t *conn, uint64_t left,
                              double fastest, uint32_t barred)
{
    double rates = 0;

    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        const psc_stripe_t *stripe = &conn->lanes[i]->stripe;

        if (!stripe_allowed(conn->lanes[i], barred))
            continue;
        rates += stripe_guess(stripe, fastest);
        left += stripe->queued;
    }
    return (double)left / rates;
}

/* Returns true if the lane gets no piece, because it is slow. */
static bool stripe_without(const psc_stripe_t *stripe, double fastest)
{
    return SLOWER * stripe_guess(stripe, fastest) < fastest;
}

/* A lane that is due (stripe_due) gets the piece, however slow it is; else the
 * lane that would finish the piece first. While that lane is full, another lane
 * gets the piece only if the whole message does not end later because of
 * that. */
psc_lane_t *psc_stripe_lane(psc_conn_t *conn, uint64_t left, size_t len,
                            uint32_t barred, uint32_t full)
{
    double fastest = stripe_fastest(conn, barred);
    psc_lane_t *best = NULL, *free = NULL;

    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        psc_lane_t *lane = conn->lanes[i];
        const psc_stripe_t *stripe = &lane->stripe;

        if (full & 1u << i || !stripe_allowed(lane, barred))
            continue;
        if (stripe_due(stripe) && psc_stripe_piece(lane))
            return lane;
        if (stripe_without(stripe, fastest))
            continue;
        if (!best || stripe_before(stripe, &best->stripe, fastest, len))
            best = lane;
        if (psc_stripe_piece(lane) &&
            (!free || stripe_before(stripe, &free->stripe, fastest, len)))
            free = lane;
    }
    if (!free || free == best ||
        stripe_end(&free->stripe, fastest, len) <=
            stripe_together(conn, left, fastest, barred))
        return free;
    return NULL;
}

/* A message begins: forget since when the idle lanes have waited, because that
 * time tells nothing of their rates. */
static void stripe_rested(psc_conn_t *conn)
{
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        psc_stripe_t *stripe = &conn->lanes[i]->stripe;

        stripe->full_at = 0;
        if (stripe->queued == 0)
            stripe->since = 0;
    }
}

psc_status_t psc_stripe_move(psc_req_t *req, uint64_t left,
                             psc_stripe_move_t move, size_t *moved_p)
{
    size_t len = psc_stripe_size(psc_req_conn(req), req->bulk->len);
    psc_status_t status = PSC_ERR_NO_RESOURCE;
    uint32_t full = 0;
    psc_lane_t *lane;

    if (left == req->bulk->len)
        stripe_rested(psc_req_conn(req));
    while (status == PSC_ERR_NO_RESOURCE &&
           (lane = psc_stripe_lane(psc_req_conn(req), left, len,
                                   req->bulk->refused, full))) {
        status = move(req, lane, moved_p);
        full |= 1u << lane->index;
    }
    if (status == PSC_ERR_NO_RESOURCE)
        stripe_none_took(psc_req_conn(req), full);
    return status;
}

void psc_stripe_sent(psc_lane_t *lane, psc_piece_t *piece, psc_req_t *req,
                     size_t len)
{
    for (uint32_t i = 0; i < lane->conn->n_lanes; i++)
        lane->conn->lanes[i]->stripe.without += len;
    lane->stripe.given += len;
    if (stripe_due(&lane->stripe) && ++lane->stripe.tries == TRIES)
        stripe_tried(&lane->stripe);
    if (!piece) {
        lane->stripe.copied += len;
        return;
    }
    stripe_begin(&lane->stripe, lane->worker->pass);
    lane->slot->awake = lane->slot->linger;
    piece->lane = lane;
    piece->req = req;
    piece->len = len;
    lane->stripe.queued += len;
}

/* Returns the status that the request of a failed piece gets. A spare lane is
 * lost with any of its pieces, and rail.c moves the piece's bytes again. */
static psc_status_t stripe_failed(psc_lane_t *lane, psc_status_t status)
{
    if (!psc_lane_spare(lane) || psc_conn_ended(lane->conn))
        /* PSC_ERR_CLOSED means here that the lane was closed; as the request's
         * status it would mean that the connection was */
        return status == PSC_ERR_CLOSED ? PSC_ERR_PEER_LOST : status;
    if (lane->state != PSC_LANE_FAILED) {
        snprintf(lane->reason, sizeof lane->reason, "a piece failed: %s",
                 psc_status_string(status));
        psc_lane_fail(lane, status);
        psc_lane_lose(lane);
    }
    return PSC_OK;
}

void psc_stripe_drop(psc_lane_t *lane)
{
    for (uint32_t i = 0; i < PSC_PIECES_MAX; i++) {
        if (lane->stripe.pieces[i].req)
            psc_stripe_comp(&lane->stripe.pieces[i].comp, PSC_ERR_PEER_LOST);
    }
}

/* The piece has ended, and its request gets the status. */
static void stripe_ended(psc_piece_t *piece, bool carried, psc_status_t status)
{
    psc_req_t *req = piece->req;

    piece->req = NULL;
    stripe_measure(&piece->lane->stripe, piece->len, piece->lane->worker->pass,
                   carried);
    if (status != PSC_OK)
        status = stripe_failed(piece->lane, status);
    req->bulk->comp.func(&req->bulk->comp, status);
}

void psc_stripe_refused(psc_piece_t *piece)
{
    stripe_ended(piece, false, PSC_OK);
}

void psc_stripe_comp(psc_comp_t *comp, psc_status_t status)
{
    stripe_ended(psc_container_of(comp, psc_piece_t, comp), status == PSC_OK,
                 status);
}
