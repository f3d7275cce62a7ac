#include "rndv.h"

#include <string.h>

#include "../core/conn.h"
#include "../core/finish.h"
#include "../core/lane.h"
#include "../core/memory/memory.h"
#include "../core/request.h"
#include "credit.h"
#include "protocol.h"

/* Returns true if the connection's configuration allows the scheme. */
static bool rndv_may(const psc_conn_t *conn, psc_rndv_scheme_t scheme)
{
    return conn->params.scheme == PSC_RNDV_AUTO ||
           conn->params.scheme == scheme;
}

bool psc_rndv_may_get(const psc_conn_t *conn)
{
    return rndv_may(conn, PSC_RNDV_GET);
}

/* ---- the sending side ---- */

/* Pack keys by which the receiver can get the message from the sender's buffer.
 * For a lent message the key of lane 0 is enough. */
static void rndv_rts_keys(psc_req_t *req, psc_wire_rts_t *wire, uint8_t *keys,
                          size_t *len_p)
{
    psc_conn_t *conn = psc_req_conn(req);
    psc_keyed_t keyed = psc_rndv_keyed(req);
    psc_segment_t *segment = NULL;

    if (req->n_iov == 1)
        segment = psc_rndv_segment(&keyed, &wire->offset);
    if (rndv_may(conn, PSC_RNDV_GET))
        wire->n_keys = (uint16_t)psc_rndv_pack_keys(&keyed, PSC_CAP_GET,
                                                    segment, keys, len_p);
    if (!(req->head.flags & PSC_FLAG_LEND) || !segment)
        return;
    if (wire->n_keys > 0 || psc_rndv_pack_key(&keyed, psc_conn_main_lane(conn),
                                              segment, keys, len_p) == PSC_OK)
        wire->flags |= PSC_RTS_LENT;
}

/* Report the first message of a connection that must wait, because of
 * psc_rts_out_full, to the control plane. */
static void rndv_report_full(psc_conn_t *conn)
{
    if (!conn->rts_max_reported)
        psc_control_event_post(&conn->worker->control_events,
                               &conn->event_slot);
    conn->rts_max_reported = true;
}

psc_status_t psc_rndv_announce(psc_req_t *req, uint16_t flags)
{
    psc_conn_t *conn = psc_req_conn(req);
    uint8_t keys[PSC_KEYS_MAX];
    size_t keys_len = 0;
    psc_wire_rts_t wire = {.tag = (uint32_t)req->head.result.tag,
                           .context =
                               psc_wire_context(req->context, req->bulk->aux),
                           .flags = flags,
                           .send_id = psc_req_id(req),
                           .len = psc_req_total(req),
                           .number = req->bulk->number};
    psc_status_t status;

    /* the peer already counts the message of a late RTS, by its placeholder
     * (tag.h) */
    if (!(flags & PSC_RTS_LATE) && psc_rts_out_full(conn)) {
        rndv_report_full(conn);
        return PSC_ERR_NO_RESOURCE;
    }
    if (conn->rts_out + 1 >= conn->worker->config.rts_max)
        wire.flags |= PSC_RTS_LAST;
    rndv_rts_keys(req, &wire, keys, &keys_len);
    status =
        psc_credit_send(conn, PSC_WIRE_RTS, &wire, sizeof wire, keys, keys_len);
    if (status != PSC_OK)
        return status;
    conn->rts_out++;
    conn->rts_sent++;
    psc_position_note(conn, req->context, req->head.result.tag);
    psc_count(conn, PSC_COUNTER_rndv_rts, 1);
    psc_count(conn, PSC_COUNTER_lent, wire.flags & PSC_RTS_LENT ? 1 : 0);
    return PSC_OK;
}

void psc_rndv_rts_answered(psc_conn_t *conn)
{
    conn->rts_out--;
    if (!psc_list_empty(&conn->work.queues[PSC_WORK_ORDERED]))
        psc_conn_mark_busy(conn);
}

psc_status_t psc_rndv_rtr_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_rtr_t *wire = am->header;
    psc_req_t *req = psc_req_find(&lane->worker->requests, wire->send_id);
    const uint8_t *keys = am->payload;
    size_t keys_len = am->len;
    psc_status_t status = PSC_ERR_UNSUPPORTED;
    psc_keyed_t keyed;

    if (!req ||
        (req->stage != PSC_STAGE_AWAIT_RTR &&
         req->stage != PSC_STAGE_OFFERED) ||
        psc_req_conn(req) != lane->conn || wire->len > psc_req_total(req))
        return PSC_ERR_PROTOCOL;
    keyed = psc_rndv_keyed(req);
    req->bulk->remote_id = wire->recv_id;
    req->bulk->len = wire->len;
    if (wire->n_keys && req->n_iov == 1 && !req->bulk->parts &&
        rndv_may(lane->conn, PSC_RNDV_PUT))
        status = psc_rndv_unpack_keys(&keyed, PSC_CAP_PUT, wire->n_keys, &keys,
                                      &keys_len);
    if (status == PSC_ERR_PROTOCOL)
        return status;
    if (status == PSC_OK)
        status = psc_rndv_register_local(&keyed);
    if (!req->confirm)
        psc_rndv_rts_answered(lane->conn);
    if (status == PSC_OK) {
        psc_count(lane->conn, PSC_COUNTER_rndv_put, 1);
        psc_req_stage_set(req, PSC_STAGE_PUT);
    } else {
        psc_count(lane->conn, PSC_COUNTER_rndv_am, 1);
        psc_req_stage_set(req, PSC_STAGE_FRAG);
    }
    psc_conn_queue(lane->conn, req);
    return PSC_OK;
}

/* ---- the receiving side ---- */

void psc_rndv_received(psc_req_t *req)
{
    psc_count(psc_req_conn(req), PSC_COUNTER_received_messages, 1);
    psc_count(psc_req_conn(req), PSC_COUNTER_received_bytes, req->bulk->len);
    if (req->confirm) {
        psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
        psc_conn_queue(psc_req_conn(req), req);
        return;
    }
    psc_req_finish(req, req->head.result.status);
}

static void rndv_recv_meets(psc_req_t *req, psc_conn_t *conn, int32_t tag,
                            uint64_t len)
{
    psc_result_t *result = &req->head.result;

    psc_req_attach(req, conn);
    psc_conn_sign(conn, result);
    result->tag = tag;
    result->nbytes = len;
    result->status = len > psc_req_total(req) ? PSC_ERR_TRUNCATED : PSC_OK;
    req->bulk->len = len < psc_req_total(req) ? len : psc_req_total(req);
}

/* Use get if the peer sent keys and the configuration allows it; otherwise ask
 * the peer to send. Get needs one control message less than put (TupleQ paper,
 * section 2). */
psc_status_t psc_rndv_recv_start(psc_req_t *req,
                                 const psc_announcement_t *announcement)
{
    const uint8_t *keys = announcement->keys;
    size_t keys_len = announcement->keys_len;
    psc_keyed_t keyed;

    if (!psc_req_extend(req)) {
        psc_req_attach(req, announcement->conn);
        psc_req_finish(req, PSC_ERR_NO_MEMORY);
        return PSC_ERR_NO_MEMORY;
    }
    rndv_recv_meets(req, announcement->conn, announcement->tag,
                    announcement->len);
    keyed = psc_rndv_keyed(req);
    req->bulk->remote_id = announcement->send_id;
    psc_req_stage_set(req, PSC_STAGE_SEND_RTR);
    req->bulk->rma.offset = announcement->offset;
    if (announcement->n_keys && req->bulk->len > 0 && req->n_iov == 1 &&
        rndv_may(announcement->conn, PSC_RNDV_GET)) {
        if (psc_rndv_unpack_keys(&keyed, PSC_CAP_GET, announcement->n_keys,
                                 &keys, &keys_len) == PSC_OK &&
            psc_rndv_register_local(&keyed) == PSC_OK) {
            psc_count(announcement->conn, PSC_COUNTER_rndv_get, 1);
            req->bulk->began = 0;
            psc_req_stage_set(req, PSC_STAGE_GET);
        } else {
            psc_count(announcement->conn, PSC_COUNTER_rndv_fallback, 1);
        }
    }
    psc_conn_queue(announcement->conn, req);
    return PSC_OK;
}

static void rndv_recv_announced(psc_req_t *req, psc_unexp_t *unexp)
{
    psc_announcement_t announcement = {.conn = unexp->conn,
                                       .tag = unexp->tag,
                                       .send_id = unexp->send_id,
                                       .len = unexp->len,
                                       .offset = unexp->offset,
                                       .n_keys = unexp->n_keys,
                                       .keys = unexp->payload,
                                       .keys_len = unexp->keys_len};
    psc_status_t status;

    if (unexp->order)
        req->head.result.order = unexp->order;
    psc_req_set_unexp(req, NULL);
    status = psc_rndv_recv_start(req, &announcement);
    announcement.conn->rts_in--;
    psc_unexp_free(unexp);
    if (status != PSC_OK)
        psc_lane_break(psc_conn_main_lane(announcement.conn), status);
}

/* Continue a receive with a message that was announced: claim the message if
 * its RTS has not arrived, else start the rendezvous. */
void psc_rndv_recv_unexpected(psc_req_t *req, psc_unexp_t *unexp)
{
    if (unexp->promised) {
        psc_unexp_claim(req, unexp);
        return;
    }
    rndv_recv_announced(req, unexp);
}

void psc_rndv_recv_landed(psc_req_t *req, psc_conn_t *conn, int32_t tag,
                          uint64_t len)
{
    rndv_recv_meets(req, conn, tag, len);
    psc_rndv_received(req);
}

psc_status_t psc_rndv_send_rtr(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_conn(req);
    psc_keyed_t keyed = psc_rndv_keyed(req);
    uint8_t keys[PSC_KEYS_MAX];
    size_t keys_len = 0;
    psc_wire_rtr_t wire = {.send_id = req->bulk->remote_id,
                           .recv_id = psc_req_id(req),
                           .len = req->bulk->len};
    psc_status_t status;

    if (req->bulk->len > 0 && !req->confirm && rndv_may(conn, PSC_RNDV_PUT))
        wire.n_keys =
            psc_rndv_pack_keys(&keyed, PSC_CAP_PUT, NULL, keys, &keys_len);
    status =
        psc_credit_send(conn, PSC_WIRE_RTR, &wire, sizeof wire, keys, keys_len);
    if (status != PSC_OK)
        return status;
    req->remote_writable = wire.n_keys > 0;
    psc_req_stage_set(req, PSC_STAGE_AWAIT_DATA);
    if (req->bulk->len == 0)
        psc_rndv_received(req);
    return PSC_INPROGRESS;
}

void psc_rndv_fill(psc_unexp_t *unexp, const psc_am_t *am)
{
    const psc_wire_rts_t *wire = am->header;

    unexp->lent = wire->flags & PSC_RTS_LENT;
    unexp->send_id = wire->send_id;
    unexp->offset = wire->offset;
    unexp->n_keys = wire->n_keys;
    unexp->keys_len = (uint32_t)am->len;
    if (am->len)
        memcpy(unexp->payload, am->payload, am->len);
}

/* ---- moving data ---- */

void psc_rndv_comp(psc_comp_t *comp, psc_status_t status)
{
    psc_req_t *req = psc_container_of(comp, psc_bulk_t, comp)->req;

    req->bulk->inflight--;
    if (status != PSC_OK && req->error == PSC_OK)
        req->error = status;
    if (req->stage == PSC_STAGE_ENDING)
        psc_access_settle(req);
    else
        psc_conn_queue(psc_req_conn(req), req);
}

psc_status_t psc_rndv_pause(psc_req_t *req)
{
    psc_conn_queue(psc_req_conn(req), req);
    return PSC_INPROGRESS;
}
