/* RPUT: the sender writes into the receiver's buffer, then sends FIN. The FIN
 * is sent only after every put on every lane is visible at the target. */
#include "rndv_put.h"

#include "../finish.h"
#include "../request.h"
#include "rndv.h"

static size_t put_limit(const psc_iface_attr_t *attr)
{
    return attr->max_put;
}

static psc_status_t put_piece(psc_req_t *req, psc_lane_t *lane, psc_iov_t piece)
{
    return lane->slot->ops->put(lane->ep, piece.base, piece.len,
                                req->bulk.mem[lane->index],
                                req->bulk.keys.key[lane->index],
                                req->rma.offset + req->bulk.issued, &req->comp);
}

psc_status_t psc_rndv_move_put(psc_req_t *req)
{
    return psc_rndv_move(req, put_piece, put_limit);
}

psc_status_t psc_rndv_put(psc_req_t *req)
{
    psc_status_t status = psc_rndv_move_put(req);

    if (status == PSC_OK)
        psc_req_stage_set(req, PSC_STAGE_FLUSH);
    return status;
}

/* bulk.arrived, otherwise unused by a sender, counts the lanes that were
 * flushed. */
psc_status_t psc_rndv_flush(psc_req_t *req)
{
    psc_conn_t *conn = req->conn;
    uint32_t n_lanes = req->bulk.one_lane ? 1 : conn->n_lanes;

    while (req->bulk.arrived < n_lanes) {
        psc_lane_t *lane = conn->lanes[req->bulk.arrived];
        psc_status_t status = PSC_OK;

        if (!(lane->slot->attr.caps & PSC_CAP_PUT_REMOTE))
            status = lane->slot->ops->ep_flush(lane->ep, &req->comp);
        if (status == PSC_ERR_NO_RESOURCE)
            return req->bulk.inflight ? PSC_INPROGRESS : status;
        if (status < 0)
            req->error = status;
        if (status == PSC_INPROGRESS)
            req->bulk.inflight++;
        req->bulk.arrived++;
    }
    if (req->bulk.inflight)
        return PSC_INPROGRESS;
    if (req->bulk.one_lane) { /* one-sided: the target gets no FIN */
        psc_req_finish(req, req->error);
        return PSC_INPROGRESS;
    }
    psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
    return PSC_OK;
}
