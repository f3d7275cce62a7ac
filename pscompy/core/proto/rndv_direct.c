/* RPUT: the sender writes into the receiver's buffer, then sends FIN. The FIN
 * is sent only after every put on every lane is visible at the target.
 * RGET: the receiver reads from the sender's buffer, then sends FIN. */
#include "rndv_direct.h"

#include "../finish.h"
#include "rates.h"
#include "rndv.h"

psc_status_t psc_rndv_put(psc_req_t *req)
{
    psc_status_t status = psc_rndv_move(req, true);

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
    psc_conn_t *conn = req->conn;
    uint32_t n_lanes = req->bulk->one_lane ? 1 : conn->n_lanes;

    while (req->bulk->arrived < n_lanes) {
        psc_lane_t *lane = conn->lanes[req->bulk->arrived];
        psc_status_t status = PSC_OK;

        if (!(lane->slot->attr.caps & PSC_CAP_PUT_REMOTE))
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
        req->bulk->began = psc_rates_begin_get(req->conn, req->bulk->len);
    status = psc_rndv_move(req, false);
    if (status != PSC_OK)
        return status;
    psc_rates_end_get(req->conn, req->bulk->len, req->bulk->began);
    if (req->error == PSC_OK) {
        psc_count(req->conn, PSC_COUNTER_received_messages, 1);
        psc_count(req->conn, PSC_COUNTER_received_bytes, req->bulk->len);
    }
    psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
    return PSC_OK;
}
