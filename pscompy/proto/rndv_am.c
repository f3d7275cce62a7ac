/* FRAG: if the lanes can neither put nor get, the data travels as active
 * messages with an offset, each received directly into the user's buffer. */
#include "rndv.h"

#include "../core/finish.h"
#include "../core/memory/memory.h"
#include "../core/pieces.h"
#include "../core/request.h"
#include "rail.h"
#include "stripe.h"

#define FRAG_IOV 8u

/* ---- sending ---- */

/* Returns true if the fragment is sent without a copy. Fragments that are not
 * spread over the lanes are ordered messages, which replay.c copies. */
static bool frag_zcopy(const psc_req_t *req, const psc_lane_t *lane, size_t len)
{
    const psc_iface_attr_t *attr = &lane->slot->attr;

    return attr->caps & PSC_CAP_AM_ZCOPY && len >= attr->min_zcopy &&
           (psc_striped(req) || !psc_req_conn(req)->replay);
}

static size_t frag_limit(const psc_req_t *req, const psc_lane_t *lane)
{
    const psc_iface_attr_t *attr = &lane->slot->attr;
    bool striped = psc_striped(req);
    size_t copied = striped ? attr->max_bcopy : psc_req_conn(req)->max_bcopy;
    uint64_t left = psc_rail_next(req->bulk).len;
    uint64_t limit = frag_zcopy(req, lane, left)
                         ? attr->max_zcopy
                         : copied - sizeof(psc_wire_frag_t);
    uint64_t most = striped ? psc_stripe_size(psc_req_conn(req), req->bulk->len)
                            : psc_req_conn(req)->params.fragment;

    if (limit > most)
        limit = most;
    return left < limit ? left : limit;
}

static psc_status_t frag_send(psc_req_t *req, psc_lane_t *lane,
                              psc_comp_t *comp, size_t *len_p, bool *copied_p)
{
    bool striped = psc_striped(req);
    psc_outlet_t out = striped ? (psc_outlet_t){lane->slot->ops, lane->ep}
                               : psc_req_conn(req)->out;
    psc_flow_t *flow = &psc_req_conn(req)->flow, before = *flow;
    psc_wire_frag_t wire = {
        .credit = psc_flow_stamp(flow, psc_req_worker(req)->budget.window),
        .ordered = !striped,
        .recv_id = req->bulk->remote_id,
        .offset = psc_rail_next(req->bulk).offset};
    psc_iov_t pieces[FRAG_IOV];
    size_t n = psc_iov_slice(psc_req_iov(req), req->n_iov, wire.offset, len_p,
                             pieces, FRAG_IOV);
    psc_status_t status;

    *copied_p = !frag_zcopy(req, lane, *len_p);
    if (*copied_p)
        status = out.ops->am_bcopy(out.ep, PSC_WIRE_FRAG, &wire, sizeof wire,
                                   pieces, n);
    else
        status = out.ops->am_zcopy(out.ep, PSC_WIRE_FRAG, &wire, sizeof wire,
                                   pieces, n, comp);
    if (status < 0)
        psc_flow_unstamp(flow, &before);
    return status;
}

/* Send the next fragment of the message on this lane. */
static psc_status_t frag_next(psc_req_t *req, psc_lane_t *lane, size_t *moved_p)
{
    psc_piece_t *piece = psc_striped(req) ? psc_stripe_piece(lane) : NULL;
    psc_comp_t *comp = piece ? &piece->comp : &req->bulk->comp;
    size_t len = frag_limit(req, lane);
    psc_status_t status;
    bool copied;

    req->bulk->comp.func = psc_rndv_comp;
    if (piece)
        comp->func = psc_stripe_comp;
    if (psc_striped(req) && psc_lane_spare(lane) &&
        !psc_rail_reserve(req->bulk))
        /* no memory to note which bytes this lane was given */
        return PSC_ERR_NO_RESOURCE;
    status = frag_send(req, lane, comp, &len, &copied);
    if (status < 0)
        return psc_lane_spare(lane) ? PSC_ERR_NO_RESOURCE : status;
    if (status == PSC_INPROGRESS)
        req->bulk->inflight++;
    if (piece)
        psc_stripe_sent(lane, status == PSC_INPROGRESS ? piece : NULL, req,
                        len);
    psc_rail_taken(req, lane, len);
    *moved_p += len;
    psc_count(psc_req_conn(req), PSC_COUNTER_fragments, 1);
    psc_count(psc_req_conn(req), PSC_COUNTER_copied_bytes, copied ? len : 0);
    return PSC_OK;
}

/* The sender of a message that goes over all lanes waits until the receiver has
 * confirmed it, because what it does next on the main lane may overtake the
 * fragments on other lanes. */
static psc_status_t frag_next_striped(psc_req_t *req, size_t *moved_p)
{
    req->confirm |= req->bulk->issued == 0;
    return psc_stripe_move(req, psc_rail_next(req->bulk).len, frag_next,
                           moved_p);
}

psc_status_t psc_rndv_frag(psc_req_t *req)
{
    bool striped = psc_striped(req);
    size_t moved = 0;

    while (!psc_rail_all_taken(req->bulk)) {
        psc_status_t status;

        if (!striped && req->bulk->inflight >= PSC_BULK_INFLIGHT)
            return PSC_INPROGRESS;
        if (moved >= PSC_BULK_BURST)
            return psc_rndv_pause(req);
        if (striped)
            status = frag_next_striped(req, &moved);
        else
            status =
                frag_next(req, psc_conn_main_lane(psc_req_conn(req)), &moved);
        if (status == PSC_ERR_NO_RESOURCE)
            return req->bulk->inflight && !striped ? PSC_INPROGRESS : status;
        if (status < 0)
            return status;
    }
    if (req->bulk->inflight)
        return PSC_INPROGRESS;
    if (req->confirm)
        psc_req_stage_set(req, PSC_STAGE_AWAIT_FIN);
    else
        psc_req_finish(req, req->error);
    return PSC_INPROGRESS;
}

/* ---- arriving ---- */

static psc_req_t *frag_receiver(psc_lane_t *lane, const psc_wire_frag_t *wire,
                                uint64_t len)
{
    psc_req_t *req = psc_req_find(&lane->worker->requests, wire->recv_id);

    if (!req || req->stage != PSC_STAGE_AWAIT_DATA ||
        psc_req_conn(req) != lane->conn || wire->offset > req->bulk->len ||
        len > req->bulk->len - wire->offset ||
        len > req->bulk->len - req->bulk->arrived)
        return NULL;
    return req;
}

/* Fragments of one receive may be arriving on several lanes. Fragments that
 * have begun to arrive count as arrived, so that no more begin than fit, but
 * the receive ends only after the last one. */
static void frag_ended(psc_req_t *req, uint64_t len)
{
    psc_count(psc_req_conn(req), PSC_COUNTER_copied_bytes, len);
    if (req->bulk->arrived < req->bulk->len || req->bulk->inflight > 0)
        return;
    req->confirm |= psc_striped(req);
    psc_rndv_received(req);
}

/* Returns true if the receive's memory was taken back while fragments were in
 * flight; see parts.h. */
static bool frag_homeless(const psc_req_t *req)
{
    return req->error != PSC_OK;
}

static void frag_count(psc_req_t *req, const psc_lane_t *lane,
                       const psc_wire_frag_t *wire, uint64_t len)
{
    req->bulk->arrived += len;
    if (!wire->ordered)
        req->bulk->arrived_by[lane->index] += len;
}

psc_status_t psc_rndv_frag_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_frag_t *wire = am->header;
    psc_req_t *req = frag_receiver(lane, wire, am->len);

    if (!req)
        return PSC_ERR_PROTOCOL;
    psc_iov_write(psc_req_iov(req), req->n_iov, wire->offset, am->payload,
                  am->len);
    frag_count(req, lane, wire, am->len);
    frag_ended(req, am->len);
    return PSC_OK;
}

/* The request may not end while a lane writes into its memory, so the payload
 * counts as an operation in flight. */
psc_status_t psc_rndv_frag_begin(psc_lane_t *lane, const psc_wire_frag_t *wire,
                                 uint64_t len, psc_dest_t *dest)
{
    psc_req_t *req = frag_receiver(lane, wire, len);
    psc_incoming_t *in = &lane->incoming;
    size_t covered = len;

    if (!req)
        return PSC_ERR_PROTOCOL;
    dest->n_iov = psc_iov_slice(psc_req_iov(req), req->n_iov, wire->offset,
                                &covered, in->iov, PSC_INCOMING_IOV);
    if (covered != len && !frag_homeless(req))
        return PSC_ERR_UNSUPPORTED;
    dest->iov = in->iov;
    in->kind = PSC_INCOMING_FRAG;
    in->req = req;
    req->bulk->inflight++;
    frag_count(req, lane, wire, len);
    return PSC_OK;
}

void psc_rndv_frag_end(psc_lane_t *lane)
{
    psc_req_t *req = lane->incoming.req;

    req->bulk->inflight--;
    if (req->stage == PSC_STAGE_ENDING)
        psc_access_settle(req);
    else
        frag_ended(req, lane->incoming.len);
}
