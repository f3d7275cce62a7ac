#include "rndv.h"

#include "eager.h"
#include "match.h"
#include "protocol.h"
#include "rates.h"

/* ---- sending ---- */

static bool rndv_may(const psc_req_t *req)
{
    (void)req; /* what nothing else carries is announced */
    return true;
}

psc_status_t psc_rndv_start(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_conn(req);
    uint64_t len = psc_req_total(req);
    bool fits = psc_eager_fits(conn, len);
    psc_status_t status = psc_rndv_announce(req, 0);

    if (status != PSC_OK)
        return status;
    psc_count(conn, PSC_COUNTER_sent_messages, 1);
    psc_count(conn, PSC_COUNTER_sent_bytes, len);
    if (!fits)
        psc_rates_sent(conn, len);
    else if (!(req->head.flags & PSC_FLAGS_ANNOUNCED) &&
             !psc_flow_has(&conn->flow, psc_credit_cost(len)))
        psc_count(conn, PSC_COUNTER_credits_exhausted, 1);
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
    if (psc_tag_carries(lane->conn, unexp->context))
        lane->conn->hands_out->announced(lane, unexp);
    else if (req)
        psc_req_no_buffer(req, unexp);
    else
        status = psc_match_keep(unexp);
    return status == PSC_ERR_CLOSED ? PSC_OK : status;
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
    lane->conn->rts_got++;
    if (wire->flags & PSC_RTS_LATE)
        return psc_tag_carries(lane->conn, wire->context)
                   ? lane->conn->hands_out->late(lane, am)
                   : PSC_ERR_PROTOCOL;
    if (psc_wire_is_am(wire->context)) {
        psc_unexp_t *unexp;
        psc_status_t status = rndv_record(lane->conn, am, &unexp);

        return status == PSC_OK ? lane->worker->unmatched->keep(unexp) : status;
    }
    psc_proto_came(lane->conn, wire->context, announcement.tag, wire->len);
    if (!psc_tag_carries(lane->conn, wire->context))
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

const psc_proto_t psc_rndv = {
    .name = "rendezvous",
    .messages =
        (const psc_proto_message_t[]){
            {PSC_WIRE_RTS, sizeof(psc_wire_rts_t), psc_rndv_rts_arrived},
            {PSC_WIRE_RTR, sizeof(psc_wire_rtr_t), psc_rndv_rtr_arrived},
            {PSC_WIRE_FRAG, sizeof(psc_wire_frag_t), psc_rndv_frag_arrived},
            {PSC_WIRE_FIN, sizeof(psc_wire_fin_t), psc_rndv_fin_arrived},
            {0}},
    .stages =
        (const psc_proto_stage_t[]){{PSC_STAGE_PUT, psc_rndv_put},
                                    {PSC_STAGE_FRAG, psc_rndv_frag},
                                    {PSC_STAGE_FLUSH, psc_rndv_flush},
                                    {PSC_STAGE_SEND_FIN, psc_rndv_send_fin},
                                    {PSC_STAGE_SEND_RTR, psc_rndv_send_rtr},
                                    {PSC_STAGE_GET, psc_rndv_get},
                                    {0}},
    .may = rndv_may,
    .announces = true,
    .start = psc_rndv_start,
};
