/* The keys by which a peer gets or puts the data of a rendezvous, and the
 * registrations that they stand for. */
#include "rndv.h"

#include <string.h>

#include "../core/memory/memory.h"
#include "../core/types/connection.h"
#include "stripe.h"

/* Returns true if the data of a request may go by put or get over the lane. */
static bool rndv_lane_able(const psc_lane_t *lane, uint64_t caps)
{
    return (lane->slot->attr.caps & caps) == caps && psc_stripe_usable(lane);
}

uint32_t psc_rndv_lanes_able(const psc_conn_t *conn, uint64_t caps)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < conn->n_lanes; i++)
        n += rndv_lane_able(conn->lanes[i], caps);
    return n;
}

/* Returns true if a fork makes the lanes' registrations of private memory
 * unusable. */
static bool rndv_lost_at_fork(const psc_conn_t *conn)
{
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        uint64_t caps = conn->lanes[i]->slot->attr.caps;

        if (caps & (PSC_CAP_PUT | PSC_CAP_GET) && !(caps & PSC_CAP_FORK))
            return true;
    }
    return false;
}

psc_segment_t *psc_rndv_segment(const psc_keyed_t *keyed, uint64_t *offset_p)
{
    psc_segment_t *segment =
        psc_pool_find(keyed->conn->worker->memory.pool, keyed->piece.base,
                      keyed->piece.len, offset_p);

    if (!segment || segment->kind != PSC_SEGMENT_PRIVATE ||
        !rndv_lost_at_fork(keyed->conn))
        return segment;
    *offset_p = 0;
    return NULL;
}

/* Pool memory is registered once per segment. A fabric with PSC_CAP_MEM_LOCAL
 * then finds the message's memory within that registration. */
static psc_status_t rndv_register(const psc_keyed_t *keyed, psc_lane_t *lane)
{
    const psc_iov_t *piece = &keyed->piece;
    uint64_t offset;
    psc_segment_t *segment = psc_rndv_segment(keyed, &offset);

    if (!segment)
        psc_count(keyed->conn, PSC_COUNTER_registrations, 1);
    else if (lane->slot->attr.caps & PSC_CAP_MEM_LOCAL)
        psc_segment_mem(segment, lane->slot);
    return lane->slot->ops->mem_register(lane->ep->iface, lane->ep, piece->base,
                                         piece->len, &keyed->mem[lane->index]);
}

static psc_mem_t *rndv_mem(const psc_keyed_t *keyed, psc_lane_t *lane)
{
    psc_mem_t **mem = &keyed->mem[lane->index];

    if (!*mem && rndv_register(keyed, lane) != PSC_OK)
        *mem = NULL;
    return *mem;
}

psc_status_t psc_rndv_pack_key(const psc_keyed_t *keyed, psc_lane_t *lane,
                               psc_segment_t *segment, uint8_t *packed,
                               size_t *len_p)
{
    psc_mem_t *mem =
        segment ? psc_segment_mem(segment, lane->slot) : rndv_mem(keyed, lane);
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

uint32_t psc_rndv_pack_keys(const psc_keyed_t *keyed, uint64_t caps,
                            psc_segment_t *segment, uint8_t *packed,
                            size_t *len_p)
{
    psc_conn_t *conn = keyed->conn;
    size_t at = 0;

    *len_p = 0;
    if (keyed->piece.len == 0)
        return 0;
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        size_t len;

        if (!rndv_lane_able(conn->lanes[i], caps))
            continue;
        if (psc_rndv_pack_key(keyed, conn->lanes[i], segment, packed + at,
                              &len) != PSC_OK) {
            psc_count(conn, PSC_COUNTER_rndv_fallback, 1);
            return 0;
        }
        at += len;
    }
    *len_p = at;
    return psc_rndv_lanes_able(conn, caps);
}

/* Take `n` bytes off the front of the packed keys. Returns NULL if there are
 * fewer. */
static const uint8_t *keys_take(const uint8_t **packed, size_t *len, size_t n)
{
    const uint8_t *at = *packed;

    if (*len < n)
        return NULL;
    *packed += n;
    *len -= n;
    return at;
}

psc_status_t psc_rndv_unpack_keys(const psc_keyed_t *keyed, uint64_t caps,
                                  uint32_t n_keys, const uint8_t **packed,
                                  size_t *len)
{
    psc_conn_t *conn = keyed->conn;
    bool any = false;

    if (n_keys > conn->n_lanes)
        return PSC_ERR_PROTOCOL;
    for (uint32_t i = 0; i < n_keys; i++) {
        const uint8_t *at = keys_take(packed, len, sizeof(psc_wire_key_t));
        psc_wire_key_t head;
        psc_lane_t *lane;
        psc_status_t status;

        if (!at)
            return PSC_ERR_PROTOCOL;
        memcpy(&head, at, sizeof head);
        at = keys_take(packed, len, head.len);
        if (!at || head.lane >= conn->n_lanes || keyed->keys[head.lane])
            return PSC_ERR_PROTOCOL;
        lane = conn->lanes[head.lane];
        if (!rndv_lane_able(lane, caps))
            continue;
        status = lane->slot->ops->rkey_unpack(lane->ep, at, head.len,
                                              &keyed->keys[head.lane]);
        if (status != PSC_OK)
            return status;
        any = true;
    }
    return any ? PSC_OK : PSC_ERR_UNSUPPORTED;
}

psc_status_t psc_rndv_register_local(const psc_keyed_t *keyed)
{
    psc_conn_t *conn = keyed->conn;

    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        psc_lane_t *lane = conn->lanes[i];
        psc_status_t status;

        if (!keyed->keys[i] || keyed->mem[i] ||
            !(lane->slot->attr.caps & PSC_CAP_MEM_LOCAL))
            continue;
        status = rndv_register(keyed, lane);
        if (status != PSC_OK)
            return status;
    }
    return PSC_OK;
}
