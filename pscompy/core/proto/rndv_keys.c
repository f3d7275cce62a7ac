/* The keys by which a peer gets or puts the data of a rendezvous, and the
 * registrations that they stand for. */
#include "rndv_keys.h"

#include <string.h>

#include "../memory/pool.h"
#include "../memory/segment.h"
#include "../types/conn.h"

/* Returns true if every lane of the connection has all of `caps`. Only then can
 * the data of a request with one piece go by put or get. */
static bool rndv_lanes_can(const psc_conn_t *conn, uint64_t caps)
{
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        if ((conn->lanes[i]->slot->attr.caps & caps) != caps)
            return false;
    }
    return conn->n_lanes > 0;
}

/* Pool memory is registered once per segment. A fabric with PSC_CAP_MEM_LOCAL
 * then finds the message's memory within that registration. */
static psc_status_t rndv_register(psc_req_t *req, psc_lane_t *lane)
{
    uint64_t offset;
    psc_segment_t *segment = psc_pool_find(
        psc_req_worker(req)->memory.pool, req->piece.base, req->total, &offset);

    if (!segment)
        psc_count(req->conn, PSC_COUNTER_registrations, 1);
    else if (lane->slot->attr.caps & PSC_CAP_MEM_LOCAL)
        psc_segment_mem(segment, lane->slot);
    return lane->slot->ops->mem_register(lane->ep->iface, lane->ep,
                                         req->piece.base, req->total,
                                         &req->bulk->mem[lane->index]);
}

static psc_mem_t *rndv_mem(psc_req_t *req, psc_lane_t *lane)
{
    psc_mem_t **mem = &req->bulk->mem[lane->index];

    if (!*mem && rndv_register(req, lane) != PSC_OK)
        *mem = NULL;
    return *mem;
}

psc_status_t psc_rndv_pack_key(psc_req_t *req, psc_lane_t *lane,
                               psc_segment_t *segment, uint8_t *packed,
                               size_t *len_p)
{
    psc_mem_t *mem =
        segment ? psc_segment_mem(segment, lane->slot) : rndv_mem(req, lane);
    psc_wire_key_t head = {.lane = lane->index};
    size_t len = PSC_RKEY_MAX;
    psc_status_t status = PSC_ERR_NO_RESOURCE;

    if (mem)
        status = lane->slot->ops->rkey_pack(lane->ep->iface, mem,
                                            packed + sizeof head, &len);
    if (status != PSC_OK)
        return status;
    head.len = (uint8_t)len;
    memcpy(packed, &head, sizeof head);
    *len_p = sizeof head + len;
    return PSC_OK;
}

uint32_t psc_rndv_pack_keys(psc_req_t *req, uint64_t caps,
                            psc_segment_t *segment, uint8_t *packed,
                            size_t *len_p)
{
    psc_conn_t *conn = req->conn;
    size_t at = 0;

    *len_p = 0;
    if (req->n_iov != 1 || req->total == 0 || !rndv_lanes_can(conn, caps))
        return 0;
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        size_t len;

        if (psc_rndv_pack_key(req, conn->lanes[i], segment, packed + at,
                              &len) != PSC_OK) {
            psc_count(conn, PSC_COUNTER_rndv_fallback, 1);
            return 0;
        }
        at += len;
    }
    *len_p = at;
    return conn->n_lanes;
}

psc_status_t psc_rndv_unpack_keys(psc_req_t *req, uint64_t caps,
                                  uint32_t n_keys, const uint8_t *packed,
                                  size_t len)
{
    psc_conn_t *conn = req->conn;

    if (!rndv_lanes_can(conn, caps))
        return PSC_ERR_UNSUPPORTED;
    if (n_keys != conn->n_lanes)
        return PSC_ERR_PROTOCOL;
    for (uint32_t i = 0; i < n_keys; i++) {
        psc_wire_key_t head;
        psc_lane_t *lane;
        psc_status_t status;

        if (len < sizeof head)
            return PSC_ERR_PROTOCOL;
        memcpy(&head, packed, sizeof head);
        packed += sizeof head;
        len -= sizeof head;
        if (head.lane >= conn->n_lanes || head.len > len ||
            req->bulk->keys.key[head.lane])
            return PSC_ERR_PROTOCOL;
        lane = conn->lanes[head.lane];
        status = lane->slot->ops->rkey_unpack(lane->ep, packed, head.len,
                                              &req->bulk->keys.key[head.lane]);
        if (status != PSC_OK)
            return status;
        packed += head.len;
        len -= head.len;
    }
    return PSC_OK;
}

psc_status_t psc_rndv_register_local(psc_req_t *req)
{
    psc_conn_t *conn = req->conn;

    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        psc_lane_t *lane = conn->lanes[i];
        psc_status_t status;

        if (req->bulk->mem[i] || !(lane->slot->attr.caps & PSC_CAP_MEM_LOCAL))
            continue;
        status = rndv_register(req, lane);
        if (status != PSC_OK)
            return status;
    }
    return PSC_OK;
}
