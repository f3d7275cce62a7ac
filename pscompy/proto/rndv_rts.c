#include "rndv_rts.h"

#include "am_announced.h"
#include "match.h"
#include "rndv.h"
#include "rndv_keys.h"
#include "tag.h"
#include "tag_send.h"
#include "tuple.h"

/* ---- sending ---- */

psc_status_t psc_rndv_send_rts(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_conn(req);
    psc_status_t status = psc_tag_send_put(req);

    if (status != PSC_ERR_UNSUPPORTED)
        return status;
    status = psc_rndv_announce(req, 0);
    if (status != PSC_OK)
        return status;
    psc_count(conn, PSC_COUNTER_sent_messages, 1);
    psc_count(conn, PSC_COUNTER_sent_bytes, psc_req_total(req));
    if (psc_tag_carries(conn, req->context)) {
        psc_req_stage_set(req, PSC_STAGE_SEND_MARK);
        return psc_tag_send_mark(req);
    }
    psc_req_stage_set(req, PSC_STAGE_AWAIT_RTR);
    return PSC_INPROGRESS;
}

psc_status_t psc_rndv_send_late(psc_req_t *req)
{
    psc_status_t status = psc_rndv_announce(req, PSC_RTS_LATE);

    if (status != PSC_OK)
        return status;
    psc_req_stage_set(req, PSC_STAGE_AWAIT_RTR);
    return PSC_INPROGRESS;
}

/* ---- arriving ---- */

static psc_status_t rndv_record(psc_conn_t *conn, const psc_am_t *am,
                                psc_unexp_t **unexp_p)
{
    const psc_wire_rts_t *wire = am->header;
    psc_unexp_t *unexp;

    if (conn->rts_in >= PSC_RTS_LIMIT)
        return PSC_ERR_PROTOCOL;
    unexp = psc_unexp_create(conn, wire->context, (int32_t)wire->tag, wire->len,
                             am->len);
    if (!unexp)
        return PSC_ERR_NO_MEMORY;
    conn->rts_in++;
    unexp->rts = true;
    psc_rndv_fill(unexp, am);
    *unexp_p = unexp;
    return PSC_OK;
}

static psc_status_t rndv_keep(psc_lane_t *lane, psc_req_t *req,
                              const psc_am_t *am)
{
    psc_unexp_t *unexp;
    psc_status_t status = rndv_record(lane->conn, am, &unexp);

    if (status != PSC_OK)
        return status;
    if (lane->conn->tagging.on)
        psc_tag_announced(lane, unexp);
    else if (req)
        psc_req_no_buffer(req, unexp);
    else
        return psc_match_keep(unexp);
    return PSC_OK;
}

static psc_status_t rndv_announced(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_rts_t *wire = am->header;
    psc_announcement_t announcement = {.conn = lane->conn,
                                       .tag = (int32_t)wire->tag,
                                       .send_id = wire->send_id,
                                       .len = wire->len,
                                       .offset = wire->offset,
                                       .n_keys = wire->n_keys,
                                       .keys = am->payload,
                                       .keys_len = am->len};
    psc_req_t *req = NULL;

    if (am->len > PSC_KEYS_MAX || announcement.tag < 0)
        return PSC_ERR_PROTOCOL;
    if (lane->conn->tuple)
        lane->conn->tuple->rts_in++;
    if (wire->flags & PSC_RTS_LATE)
        return psc_tag_late_arrived(lane, am);
    if (wire->context == PSC_CONTEXT_AM)
        return psc_am_announced(lane->conn, wire->aux, &announcement);
    if (psc_tuple_is_long(lane->conn, wire->len))
        psc_tuple_came(lane->conn, wire->context, announcement.tag);
    if (!lane->conn->tagging.on)
        req = psc_match_arrival(lane->conn, wire->context, announcement.tag);
    if (req == PSC_MATCH_REFUSED)
        return PSC_ERR_PROTOCOL;
    if (!req || req->head.flags & PSC_FLAG_NO_BUFFER)
        return rndv_keep(lane, req, am);
    return psc_rndv_recv_start(req, &announcement);
}

psc_status_t psc_rndv_rts_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_rts_t *wire = am->header;
    psc_status_t status = rndv_announced(lane, am);

    lane->conn->rts_in_last =
        wire->flags & PSC_RTS_LAST ? lane->conn->rts_in : 0;
    return status;
}
