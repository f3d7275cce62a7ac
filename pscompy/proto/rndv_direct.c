/* RPUT: the sender writes into the receiver's buffer, then sends FIN. The FIN
 * is sent only after every put on every lane is visible at the target.
 * RGET: the receiver reads from the sender's buffer, then sends FIN. */
#include "rndv.h"

#include "../core/finish.h"
#include "../core/pieces.h"
#include "rail.h"
#include "rates.h"
#include "stripe.h"

/* ---- moving pieces by put or get ---- */

/* Returns the part (one of the request's buffers) that has the byte at
 * `offset`. */
static const psc_part_t *rndv_part(psc_bulk_t *bulk, uint64_t offset)
{
    while (bulk->parts[bulk->part].begin > offset)
        bulk->part--;
    while (bulk->parts[bulk->part].end <= offset)
        bulk->part++;
    return &bulk->parts[bulk->part];
}

static size_t rndv_limit(const psc_req_t *req, size_t most, uint64_t left)
{
    const psc_conn_t *conn = psc_req_conn(req);
    size_t limit = psc_striped(req) ? psc_stripe_size(conn, req->bulk->len)
                                    : conn->params.fragment;

    if (limit > most)
        limit = most;
    return left < limit ? left : limit;
}

/* The lane gets no more pieces of this message. */
static void rndv_bar(psc_req_t *req, const psc_lane_t *lane)
{
    req->bulk->refused |= (uint8_t)(1u << lane->index);
}

/* The peer's fabric has refused the key of a spare lane, perhaps because the
 * peer has lost that lane after it had sent the key: move this piece over the
 * other lanes. */
static void rndv_refused(psc_piece_t *piece)
{
    psc_req_t *req = piece->req;

    rndv_bar(req, piece->lane);
    if (!psc_rail_take_back_one(req->bulk, piece->lane->index, piece->offset) &&
        req->error == PSC_OK)
        req->error = PSC_ERR_NO_MEMORY;
    psc_stripe_refused(piece);
}

/* Returns true if the status says that the key was refused. Returns false once
 * the lane is lost, because the piece may then be moved again only after the
 * peer has lost the lane, too (step 3 in rail.h). */
static bool rndv_key_refused(const psc_lane_t *lane, psc_status_t status)
{
    return status == PSC_ERR_INVALID && psc_lane_spare(lane) &&
           lane->state != PSC_LANE_FAILED;
}

/* Completion function of a piece that is a put or get: its bytes are in
 * place. */
static void rndv_piece_comp(psc_comp_t *comp, psc_status_t status)
{
    psc_piece_t *piece = psc_container_of(comp, psc_piece_t, comp);

    if (rndv_key_refused(piece->lane, status)) {
        rndv_refused(piece);
        return;
    }
    if (status == PSC_OK)
        psc_rail_done(piece->req, piece->lane, piece->offset);
    psc_stripe_comp(comp, status);
}

/* The lane has taken a put or get of `len` bytes; `status` is what its
 * operation has returned. */
static void rndv_moved(psc_req_t *req, psc_lane_t *lane, psc_piece_t *own,
                       size_t len, psc_status_t status)
{
    uint64_t offset = psc_rail_next(req->bulk).offset;
    bool flies = status == PSC_INPROGRESS;

    if (own)
        own->offset = offset;
    req->bulk->inflight += flies;
    req->bulk->waited |= flies;
    psc_stripe_sent(lane, flies ? own : NULL, req, len);
    psc_rail_taken(req, lane, len);
    if (!flies)
        psc_rail_done(req, lane, offset);
    psc_count(psc_req_conn(req), PSC_COUNTER_fragments, 1);
    psc_count(psc_req_conn(req), PSC_COUNTER_copied_bytes, len);
}

/* Move the next piece over the lane. A lane without a key (it was lost, has
 * joined after the message was announced, or cannot put and get) gets none; nor
 * does a spare one whose operation fails, because its loss is about to be
 * reported. */
static psc_status_t rndv_move_on(psc_req_t *req, psc_lane_t *lane, bool is_put,
                                 size_t *moved_p)
{
    psc_span_t next = psc_rail_next(req->bulk);
    const psc_part_t *part =
        req->bulk->parts ? rndv_part(req->bulk, next.offset) : NULL;
    uint64_t done = next.offset - (part ? part->begin : 0);
    uint64_t left = part && part->end - next.offset < next.len
                        ? part->end - next.offset
                        : next.len;
    const psc_transport_ops_t *ops = lane->slot->ops;
    psc_mem_t *mem = (part ? part->mem : req->bulk->mem)[lane->index];
    psc_rkey_t *key = (part ? &part->keys : &req->bulk->keys)->key[lane->index];
    uint64_t at = (part ? part->offset : req->bulk->rma.offset) + done;
    size_t most = is_put ? lane->slot->attr.max_put : lane->slot->attr.max_get;
    size_t want = rndv_limit(req, most, left);
    psc_piece_t *own = psc_striped(req) ? psc_stripe_piece(lane) : NULL;
    psc_comp_t *comp = own ? &own->comp : &req->bulk->comp;
    psc_iov_t piece;
    psc_status_t status;

    if (!key || (psc_lane_spare(lane) && !psc_rail_reserve(req->bulk))) {
        rndv_bar(req, lane);
        return PSC_ERR_NO_RESOURCE;
    }
    psc_iov_slice(psc_req_iov(req) + (part ? req->bulk->part : 0),
                  part ? 1 : req->n_iov, done, &want, &piece, 1);
    req->bulk->comp.func = psc_rndv_comp;
    if (own)
        comp->func = rndv_piece_comp;
    status =
        is_put ? ops->put(lane->ep, piece.base, piece.len, mem, key, at, comp)
               : ops->get(lane->ep, piece.base, piece.len, mem, key, at, comp);
    if (status < 0 && !psc_lane_spare(lane))
        return status;
    if (status < 0) {
        if (status != PSC_ERR_NO_RESOURCE)
            rndv_bar(req, lane);
        return PSC_ERR_NO_RESOURCE;
    }
    rndv_moved(req, lane, own, piece.len, status);
    *moved_p += piece.len;
    return PSC_OK;
}

static psc_status_t rndv_put_on(psc_req_t *req, psc_lane_t *lane,
                                size_t *moved_p)
{
    return rndv_move_on(req, lane, true, moved_p);
}

static psc_status_t rndv_get_on(psc_req_t *req, psc_lane_t *lane,
                                size_t *moved_p)
{
    return rndv_move_on(req, lane, false, moved_p);
}

/* Returns true if pieces were given to a lane that was lost, and may not be
 * moved again yet. */
static bool rndv_held(const psc_req_t *req)
{
    return req->bulk->taken.n > 0 && req->error == PSC_OK;
}

/* No lane can move the rest: return PSC_ERR_UNSUPPORTED once no put or get that
 * was issued before can still move bytes of the message. */
static psc_status_t rndv_stranded(const psc_req_t *req)
{
    return req->bulk->inflight || rndv_held(req) ? PSC_INPROGRESS
                                                 : PSC_ERR_UNSUPPORTED;
}

psc_status_t psc_rndv_move(psc_req_t *req, bool is_put)
{
    psc_stripe_move_t move = is_put ? rndv_put_on : rndv_get_on;
    bool striped = psc_striped(req);
    size_t moved = 0;

    while (!psc_rail_all_taken(req->bulk) && req->error == PSC_OK) {
        psc_status_t status;

        if (moved >= PSC_BULK_BURST)
            return psc_rndv_pause(req);
        if (!striped && req->bulk->inflight >= PSC_BULK_INFLIGHT)
            return PSC_INPROGRESS;
        if (striped)
            status = psc_stripe_move(req, psc_rail_next(req->bulk).len, move,
                                     &moved);
        else
            status = move(req, psc_conn_main_lane(psc_req_conn(req)), &moved);
        if (status == PSC_ERR_NO_RESOURCE && striped)
            return psc_stripe_possible(req) ? status : rndv_stranded(req);
        if (status == PSC_ERR_NO_RESOURCE)
            return req->bulk->inflight ? PSC_INPROGRESS : status;
        if (status < 0)
            req->error = status;
    }
    return req->bulk->inflight || rndv_held(req) ? PSC_INPROGRESS : PSC_OK;
}

/* ---- stages ---- */

void psc_rndv_begin_again(psc_req_t *req)
{
    req->bulk->issued = req->bulk->again.n = req->bulk->refused = 0;
}

/* The lanes for which there were keys are lost: move the whole message again in
 * another way, which begins with this stage. */
static psc_status_t rndv_restart(psc_req_t *req, psc_stage_t stage)
{
    psc_rndv_begin_again(req);
    psc_count(psc_req_conn(req), PSC_COUNTER_rndv_fallback, 1);
    psc_req_stage_set(req, stage);
    return PSC_OK;
}

psc_status_t psc_rndv_put(psc_req_t *req)
{
    psc_status_t status = psc_rndv_move(req, true);

    if (status == PSC_ERR_UNSUPPORTED)
        return rndv_restart(req, PSC_STAGE_FRAG);
    if (status == PSC_OK)
        psc_req_stage_set(req, PSC_STAGE_FLUSH);
    return status;
}

psc_status_t psc_rndv_one_sided_result(const psc_req_t *req)
{
    return req->error == PSC_ERR_INVALID ? PSC_ERR_REGION : req->error;
}

/* bulk.arrived, otherwise unused by a sender, counts the lanes that were
 * flushed. */
psc_status_t psc_rndv_flush(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_conn(req);
    uint32_t n_lanes = req->bulk->one_lane ? 1 : conn->n_lanes;

    while (req->bulk->arrived < n_lanes) {
        psc_lane_t *lane = conn->lanes[req->bulk->arrived];
        psc_status_t status = PSC_OK;

        if (psc_lane_puts_early(lane))
            status = lane->slot->ops->ep_flush(lane->ep, &req->bulk->comp);
        if (status == PSC_ERR_NO_RESOURCE)
            return req->bulk->inflight ? PSC_INPROGRESS : status;
        if (status < 0)
            req->error = status;
        if (status == PSC_INPROGRESS)
            req->bulk->inflight++;
        req->bulk->arrived++;
    }
    if (req->bulk->inflight)
        return PSC_INPROGRESS;
    if (req->bulk->one_lane) { /* one-sided: the target gets no FIN */
        psc_req_finish(req, psc_rndv_one_sided_result(req));
        return PSC_INPROGRESS;
    }
    psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
    return PSC_OK;
}

psc_status_t psc_rndv_get(psc_req_t *req)
{
    psc_status_t status;

    if (req->bulk->began == 0)
        req->bulk->began =
            psc_rates_begin_get(psc_req_conn(req), req->bulk->len);
    status = psc_rndv_move(req, false);
    if (status != PSC_OK && status != PSC_ERR_UNSUPPORTED)
        return status;
    psc_rates_end_get(psc_req_conn(req), req->bulk->len,
                      status == PSC_OK ? req->bulk->began : -1);
    if (status != PSC_OK)
        return rndv_restart(req, PSC_STAGE_SEND_RTR);
    if (req->error == PSC_OK) {
        psc_count(psc_req_conn(req), PSC_COUNTER_received_messages, 1);
        psc_count(psc_req_conn(req), PSC_COUNTER_received_bytes,
                  req->bulk->len);
    }
    psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
    return PSC_OK;
}
