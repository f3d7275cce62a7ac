/* RGET: the receiver reads from the sender's buffer, then sends FIN. */
#include "rndv_get.h"

#include "../request.h"
#include "rndv.h"

static size_t get_limit(const psc_iface_attr_t *attr)
{
    return attr->max_get;
}

static psc_status_t get_piece(psc_req_t *req, psc_lane_t *lane, psc_iov_t piece)
{
    return lane->slot->ops->get(lane->ep, piece.base, piece.len,
                                req->bulk.mem[lane->index],
                                req->bulk.keys.key[lane->index],
                                req->rma.offset + req->bulk.issued, &req->comp);
}

psc_status_t psc_rndv_move_get(psc_req_t *req)
{
    return psc_rndv_move(req, get_piece, get_limit);
}

psc_status_t psc_rndv_get(psc_req_t *req)
{
    psc_status_t status = psc_rndv_move_get(req);

    if (status != PSC_OK)
        return status;
    if (req->error == PSC_OK) {
        psc_count(req->conn, PSC_COUNTER_received_messages, 1);
        psc_count(req->conn, PSC_COUNTER_received_bytes, req->bulk.len);
    }
    psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
    return PSC_OK;
}
