/* FIN: the data is in place, so the peer may reuse its buffer, or read it. A
 * small message that wakes the peer costs as much as about 100 KiB of data. So
 * if the fabric has completed several puts or gets by the time of a progress
 * pass, their FINs are sent as one message when that pass flushes the
 * connection. */
#include "rndv.h"

#include <string.h>

#include "../core/finish.h"
#include "../core/memory/memory.h"
#include "../core/request.h"
#include "credit.h"
#include "rail.h"

/* ---- sending ---- */

psc_status_t psc_rndv_fin(psc_conn_t *conn, psc_status_t result,
                          const uint64_t *ids, uint32_t n)
{
    psc_wire_fin_t wire = {.status = result, .request_id = ids[0]};
    psc_status_t status = psc_credit_send(
        conn, PSC_WIRE_FIN, &wire, sizeof wire, ids + 1, (n - 1) * sizeof *ids);

    if (status == PSC_OK)
        psc_count(conn, PSC_COUNTER_rndv_fin, 1);
    return status;
}

psc_status_t psc_rndv_send_fin(psc_req_t *req)
{
    psc_status_t status;

    /* a lane is still reading the request's memory */
    if (req->bulk->inflight > 0)
        return PSC_INPROGRESS;
    if (req->bulk->waited && req->error == PSC_OK) {
        psc_list_push(&psc_req_conn(req)->work.fins, &req->bulk->work_link);
        return PSC_INPROGRESS;
    }
    status =
        psc_rndv_fin(psc_req_conn(req), req->error, &req->bulk->remote_id, 1);
    if (status != PSC_OK)
        return status;
    psc_req_finish(req, req->error);
    return PSC_INPROGRESS;
}

/* Collect the ids of the next FINs, as many as fit into one message. */
static uint32_t fin_ids(const psc_conn_t *conn, uint64_t *ids)
{
    const psc_link_t *link = conn->work.fins.next;
    uint32_t n = 0;

    for (; link != &conn->work.fins && n < PSC_FINS_MAX; link = link->next)
        ids[n++] = psc_container_of(link, psc_bulk_t, work_link)->remote_id;
    return n;
}

/* Complete a request only after its FIN was handed to the lane, because the
 * program may never call progress again afterwards. */
bool psc_rndv_send_fins(psc_conn_t *conn)
{
    uint64_t ids[PSC_FINS_MAX];
    bool moved = false;

    while (!psc_list_empty(&conn->work.fins)) {
        uint32_t n = fin_ids(conn, ids);
        psc_status_t status = psc_rndv_fin(conn, PSC_OK, ids, n);
        psc_link_t *link;

        if (status == PSC_ERR_NO_RESOURCE)
            break;
        while (n-- > 0 && (link = psc_list_pop(&conn->work.fins)))
            psc_req_finish(psc_container_of(link, psc_bulk_t, work_link)->req,
                           status);
        moved = true;
    }
    return moved;
}

/* ---- arriving ---- */

/* A FIN for a receive ends a put by the keys that were sent to the peer.
 * Fragments need no FIN, so none may have arrived or be arriving on another
 * lane. */
static psc_status_t fin_of_put(psc_req_t *req)
{
    if (!req->remote_writable || req->bulk->arrived > 0 ||
        req->bulk->inflight > 0)
        return PSC_ERR_PROTOCOL;
    psc_rndv_received(req);
    return PSC_OK;
}

static psc_status_t fin_of_one(psc_lane_t *lane, uint64_t id,
                               psc_status_t result)
{
    psc_req_t *req = psc_req_find(&lane->worker->requests, id);

    /* a receive has no connection while it may be in a match queue: in stages
     * before SEND */
    if (!req || req->stage < PSC_STAGE_SEND || psc_req_conn(req) != lane->conn)
        return PSC_ERR_PROTOCOL;
    switch (req->stage) {
    /* the peer has got the data from here, or has refused it */
    case PSC_STAGE_AWAIT_RTR:
        if (!req->confirm)
            psc_rndv_rts_answered(lane->conn);
        break;
    /* the peer has received all offered buffers, or has refused them */
    case PSC_STAGE_OFFERED:
    case PSC_STAGE_LENT: /* the peer has released its view */
        break;
    case PSC_STAGE_AWAIT_DATA: /* the peer has put the data, or failed */
        if (result == PSC_OK)
            return fin_of_put(req);
        break;
    case PSC_STAGE_AWAIT_FIN: /* the peer has all the data */
        break;
    /* the peer has the data, although sends on this side are not completed
     * yet */
    case PSC_STAGE_FRAG:
        if (!req->confirm || !psc_rail_all_taken(req->bulk))
            return PSC_ERR_PROTOCOL;
        req->confirm = false;
        req->error = result;
        return PSC_OK;
    default:
        return PSC_ERR_PROTOCOL;
    }
    psc_req_fail(req, result);
    return PSC_OK;
}

psc_status_t psc_rndv_fin_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_fin_t *wire = am->header;
    psc_status_t result = (psc_status_t)wire->status;
    size_t more = am->len / sizeof(uint64_t);
    psc_status_t status;

    if (wire->status > 0 || am->len % sizeof(uint64_t) != 0 ||
        more >= PSC_FINS_MAX)
        return PSC_ERR_PROTOCOL;
    status = fin_of_one(lane, wire->request_id, result);
    for (size_t i = 0; i < more && status == PSC_OK; i++) {
        uint64_t id;

        memcpy(&id, (const char *)am->payload + i * sizeof id, sizeof id);
        status = fin_of_one(lane, id, result);
    }
    return status;
}
