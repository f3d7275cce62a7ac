#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "../conn.h"
#include "../finish.h"
#include "../request.h"

/* ---- the payload that is arriving on a lane ---- */

/* Discard the rest of the payload that is arriving on the lane. */
static void landing_cut(psc_lane_t *lane)
{
    for (size_t i = 0; i < PSC_INCOMING_IOV; i++)
        lane->incoming.iov[i].len = 0;
}

void psc_landing_bounce(psc_incoming_t *in, const void *header,
                        psc_dest_t *dest_p)
{
    memcpy(in->header, header, in->header_len);
    in->bounce = malloc(in->len ? in->len : 1);
    if (!in->bounce)
        return;
    in->kind = PSC_INCOMING_BOUNCE;
    in->iov[0] = (psc_iov_t){in->bounce, in->len};
    *dest_p = (psc_dest_t){.iov = in->iov, .n_iov = 1};
}

void psc_landing_drop(psc_lane_t *lane)
{
    landing_cut(lane);
    if (lane->incoming.kind != PSC_INCOMING_BOUNCE)
        return;
    free(lane->incoming.bounce);
    lane->incoming.kind = PSC_INCOMING_NONE;
}

/* ---- regions ---- */

void psc_target_init(psc_target_t *target)
{
    psc_list_init(&target->accesses);
    target->closed = false;
}

void psc_target_admit(psc_target_t *target, psc_req_t *req)
{
    psc_list_push(&target->accesses, &req->bulk->access_link);
}

void psc_target_leave(psc_req_t *req)
{
    psc_list_remove(&req->bulk->access_link);
}

/* Discard the rest of the request's payload on each lane where it is arriving,
 * and take the memory away from the request. */
static void access_cut(psc_req_t *req)
{
    for (uint32_t i = 0; i < psc_req_conn(req)->n_lanes; i++) {
        if (psc_incoming_for(&psc_req_conn(req)->lanes[i]->incoming, req))
            landing_cut(psc_req_conn(req)->lanes[i]);
    }
    psc_req_set_iov(req, NULL, 0);
}

/* Returns true for a put whose data is in place, and for a get whose data has
 * been handed to a lane. Neither needs the region's memory any more. */
static bool access_complete(const psc_req_t *req)
{
    return req->stage == PSC_STAGE_SEND_FIN ||
           (req->stage == PSC_STAGE_FRAG &&
            req->bulk->issued == req->bulk->len);
}

/* Refuse an access. The data of a put are discarded from now on, until its last
 * fragment has arrived; a get sends no more fragments than it has sent already.
 * Both report the error to the origin by a FIN. */
static void access_refuse(psc_req_t *req)
{
    if (access_complete(req))
        return;
    if (req->error == PSC_OK)
        req->error = PSC_ERR_REGION;
    access_cut(req);
    if (req->stage == PSC_STAGE_SEND_RTR || req->stage == PSC_STAGE_FRAG) {
        psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
        psc_conn_queue(psc_req_conn(req), req);
    }
}

psc_status_t psc_target_close(psc_target_t *target)
{
    psc_status_t status = PSC_OK;

    psc_list_for_each(bulk, &target->accesses, psc_bulk_t, access_link) {
        psc_req_t *req = bulk->req;

        if (!target->closed)
            access_refuse(req);
        /* Incoming data of a put was cut above, so only a get can still be in
         * flight. */
        if (req->kind == PSC_REQ_SEND && req->bulk->inflight > 0)
            status = PSC_INPROGRESS;
    }
    target->closed = true;
    return status;
}

/* ---- keys ---- */

static psc_status_t access_revoke_mem(const psc_lane_t *lane, psc_mem_t *mem)
{
    const psc_iface_slot_t *slot = lane->slot;

    return mem && slot->ops->mem_revoke
               ? slot->ops->mem_revoke(slot->iface, mem)
               : PSC_OK;
}

static psc_status_t access_revoke_lane(const psc_req_t *req,
                                       const psc_lane_t *lane)
{
    const psc_bulk_t *bulk = req->bulk;
    psc_status_t status = access_revoke_mem(lane, bulk->mem[lane->index]);

    for (uint32_t i = 0; bulk->parts && i < req->n_iov; i++) {
        if (access_revoke_mem(lane, bulk->parts[i].mem[lane->index]) ==
            PSC_INPROGRESS)
            status = PSC_INPROGRESS;
    }
    return status;
}

/* Revoke the keys of every lane without stopping at the first that is not done,
 * so that all lanes begin at once. */
static psc_status_t access_revoke(psc_req_t *req)
{
    psc_status_t status = PSC_OK;

    for (uint32_t i = 0; i < psc_req_conn(req)->n_lanes; i++) {
        if (access_revoke_lane(req, psc_req_conn(req)->lanes[i]) ==
            PSC_INPROGRESS)
            status = PSC_INPROGRESS;
    }
    return status;
}

void psc_access_settle(psc_req_t *req)
{
    if (req->bulk->inflight > 0)
        return;
    if (req->remote_writable && access_revoke(req) == PSC_INPROGRESS) {
        if (!psc_link_listed(&req->bulk->work_link))
            psc_ends_add(&psc_req_worker(req)->ends,
                         &psc_req_worker(req)->ends.revoking,
                         &req->bulk->work_link);
        return;
    }
    psc_req_unqueue(req);
    psc_req_finish(req, req->error);
}

void psc_req_fail(psc_req_t *req, psc_status_t status)
{
    if (req->error == PSC_OK)
        req->error = status;
    psc_req_unqueue(req);
    psc_req_stage_set(req, PSC_STAGE_ENDING);
    psc_access_settle(req);
}

void psc_access_progress(psc_worker_t *worker)
{
    psc_list_for_each(bulk, &worker->ends.revoking, psc_bulk_t, work_link)
        psc_access_settle(bulk->req);
}

psc_status_t psc_access_lane_end(const psc_lane_t *lane)
{
    psc_status_t status = PSC_OK;

    if (!lane->conn)
        return PSC_OK;
    psc_list_for_each(req, &lane->conn->active, psc_req_t, link) {
        if ((req->remote_writable || psc_lane_spare(lane)) &&
            access_revoke_lane(req, lane) == PSC_INPROGRESS)
            status = PSC_INPROGRESS;
    }
    return status;
}

void psc_access_lane_ended(psc_lane_t *lane)
{
    if (!lane->conn)
        return;
    psc_list_for_each(req, &lane->conn->active, psc_req_t, link)
        psc_req_forget_lane(req, lane);
}

/* Returns true for a failed receive whose memory the peer may still access: the
 * peer has keys, or a get from the peer is in flight. */
static bool access_open(const psc_req_t *req)
{
    return req->in_use && req->kind == PSC_REQ_RECV &&
           req->stage == PSC_STAGE_ENDING &&
           (req->remote_writable || req->bulk->inflight > 0);
}

unsigned psc_access_count(const psc_worker_t *worker)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < psc_requests_count(&worker->requests); i++)
        n += access_open(psc_req_at(&worker->requests, i));
    return n;
}
