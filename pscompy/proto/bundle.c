#include "bundle.h"

#include <stdlib.h>
#include <string.h>

#include "../core/conn.h"
#include "../core/finish.h"
#include "../core/pieces.h"
#include "../core/progress/progress.h"
#include "../core/request.h"
#include "rndv.h"

/* Maximum length of a packed part: the length of one buffer, and the keys of
 * the buffer. */
#define PART_MAX (sizeof(psc_wire_part_t) + PSC_KEYS_MAX)

_Static_assert(sizeof(psc_wire_offer_t) + PART_MAX <= PSC_OFFER_PART_MAX,
               "each part of an offer has its room");

/* ---- both sides ---- */

/* Create a request for the buffers in args->iov. The request is not queued
 * yet. */
static psc_status_t bundle_request(psc_conn_t *conn, psc_req_kind_t kind,
                                   const psc_send_args_t *args,
                                   psc_req_t **req_p)
{
    psc_req_t *req;
    uint64_t at = 0;

    if (args->n_iov == 0 || psc_layout_of(args->iov, args->n_iov))
        return PSC_ERR_INVALID;
    req = psc_req_create_bulk(&conn->worker->requests, kind);
    if (!req)
        return PSC_ERR_NO_MEMORY;
    *req_p = req;
    psc_req_attach(req, conn);
    req->head.flags = args->flags;
    req->head.owner = args->owner;
    req->context = args->context;
    req->confirm = true;
    req->bulk->parts = calloc(args->n_iov, sizeof *req->bulk->parts);
    if (!req->bulk->parts ||
        psc_req_set_iov(req, args->iov, args->n_iov) != PSC_OK)
        return PSC_ERR_NO_MEMORY;
    for (size_t i = 0; i < args->n_iov; i++) {
        req->bulk->parts[i].begin = at;
        req->bulk->parts[i].end = at += args->iov[i].len;
    }
    req->bulk->len = req->head.result.nbytes = psc_req_total(req);
    return PSC_OK;
}

static psc_keyed_t part_keyed(psc_req_t *req, uint32_t i)
{
    psc_part_t *part = &req->bulk->parts[i];

    return (psc_keyed_t){psc_req_conn(req), psc_req_iov(req)[i], part->mem,
                         part->keys.key};
}

/* ---- the sending side ---- */

/* Pack a part: the length of one buffer, and its keys. Returns false if
 * `with_keys` is set, but no lane can make a key for the buffer. */
static bool part_pack(psc_req_t *req, uint32_t i, uint8_t *packed,
                      size_t *len_p, bool with_keys)
{
    psc_keyed_t keyed = part_keyed(req, i);
    psc_wire_part_t wire = {.len = keyed.piece.len};
    psc_segment_t *segment;
    size_t len = 0;

    if (with_keys && wire.len > 0) {
        segment = psc_rndv_segment(&keyed, &wire.offset);
        if (psc_rndv_pack_keys(&keyed, PSC_CAP_GET, segment,
                               packed + sizeof wire, &len) == 0)
            return false;
    }
    memcpy(packed, &wire, sizeof wire);
    *len_p += sizeof wire + len;
    return true;
}

/* Pack an offer of the request's buffers. Returns false if a buffer cannot have
 * keys; the caller then packs the whole offer without keys. */
static bool bundle_pack(psc_req_t *req, uint8_t *packed, size_t *len_p,
                        bool with_keys)
{
    psc_wire_offer_t wire = {
        .send_id = psc_req_id(req),
        .n_parts = req->n_iov,
        .n_keys =
            with_keys ? psc_rndv_lanes_able(psc_req_conn(req), PSC_CAP_GET) : 0,
    };

    memcpy(packed, &wire, sizeof wire);
    *len_p = sizeof wire;
    for (uint32_t i = 0; i < req->n_iov; i++) {
        if (!part_pack(req, i, packed + *len_p, len_p, with_keys))
            return false;
    }
    return true;
}

/* Have the sender spin for twice the time that the transport estimates for the
 * copy, because a peer may copy more slowly. */
static void bundle_expect(psc_conn_t *conn, uint64_t nbytes)
{
    double bandwidth = psc_conn_main_lane(conn)->slot->attr.bandwidth;

    if (bandwidth > 0)
        psc_spin_expect(conn->worker, 2e9 * (double)nbytes / bandwidth);
}

psc_status_t psc_bundle_offer(psc_conn_t *conn, const psc_send_args_t *args,
                              uint8_t *packed, size_t *len_p,
                              psc_request_t **request_p)
{
    psc_status_t status = psc_conn_usable(conn);
    psc_req_t *req = NULL;

    if (status == PSC_OK &&
        (conn->state != PSC_CONN_UP || args->n_iov > PSC_OFFER_PARTS_MAX))
        status = PSC_ERR_UNSUPPORTED;
    if (status == PSC_OK && *len_p / PSC_OFFER_PART_MAX < args->n_iov)
        status = PSC_ERR_INVALID;
    if (status == PSC_OK)
        status = bundle_request(conn, PSC_REQ_SEND, args, &req);
    if (status != PSC_OK)
        return req ? psc_req_abandon(req, status) : status;
    if (!psc_rndv_may_get(conn) || !bundle_pack(req, packed, len_p, true))
        bundle_pack(req, packed, len_p, false);
    psc_req_stage_set(req, PSC_STAGE_OFFERED);
    psc_count(conn, PSC_COUNTER_offered, req->n_iov);
    psc_count(conn, PSC_COUNTER_sent_messages, 1);
    psc_count(conn, PSC_COUNTER_sent_bytes, psc_req_total(req));
    bundle_expect(conn, psc_req_total(req));
    *request_p = &req->head;
    return PSC_INPROGRESS;
}

/* ---- the receiving side ---- */

static bool part_take(void *to, size_t n, const uint8_t **packed, size_t *len)
{
    if (*len < n)
        return false;
    memcpy(to, *packed, n);
    *packed += n;
    *len -= n;
    return true;
}

static psc_status_t part_unpack(psc_req_t *req, uint32_t i, uint32_t n_keys,
                                const uint8_t **packed, size_t *len)
{
    psc_keyed_t keyed = part_keyed(req, i);
    psc_wire_part_t wire;
    psc_status_t status;

    if (!part_take(&wire, sizeof wire, packed, len) ||
        wire.len != keyed.piece.len)
        return PSC_ERR_PROTOCOL;
    req->bulk->parts[i].offset = wire.offset;
    if (n_keys == 0 || wire.len == 0)
        return PSC_OK;
    status = psc_rndv_unpack_keys(&keyed, PSC_CAP_GET, n_keys, packed, len);
    return status == PSC_OK ? psc_rndv_register_local(&keyed) : status;
}

/* Returns PSC_ERR_PROTOCOL if the offer's buffers are not those of the request;
 * another error if the keys cannot be used. */
static psc_status_t bundle_unpack(psc_req_t *req, const uint8_t *packed,
                                  size_t len)
{
    psc_status_t status = PSC_OK;
    psc_wire_offer_t wire;

    if (!part_take(&wire, sizeof wire, &packed, &len) ||
        wire.n_parts != req->n_iov)
        return PSC_ERR_PROTOCOL;
    req->bulk->remote_id = wire.send_id;
    for (uint32_t i = 0; i < req->n_iov && status == PSC_OK; i++)
        status = part_unpack(req, i, wire.n_keys, &packed, &len);
    if (status == PSC_OK && len > 0)
        return PSC_ERR_PROTOCOL;
    if (status == PSC_OK &&
        (wire.n_keys == 0 || !psc_rndv_may_get(psc_req_conn(req))))
        return PSC_ERR_UNSUPPORTED;
    return status;
}

/* Refuse an offer: the sender's request ends with the error that the FIN
 * carries. */
static psc_status_t bundle_refuse(psc_conn_t *conn, const psc_send_args_t *args,
                                  const uint8_t *packed, size_t len,
                                  psc_request_t **request_p)
{
    psc_wire_offer_t wire;
    psc_req_t *req;

    if (!part_take(&wire, sizeof wire, &packed, &len))
        return PSC_ERR_PROTOCOL;
    req = psc_req_create_bulk(&conn->worker->requests, PSC_REQ_RECV);
    if (!req)
        return PSC_ERR_NO_MEMORY;
    psc_req_attach(req, conn);
    req->head.flags = args->flags;
    req->head.owner = args->owner;
    req->bulk->remote_id = wire.send_id;
    req->error = PSC_ERR_NO_MEMORY;
    psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
    *request_p = &req->head;
    psc_conn_queue(conn, req);
    psc_conn_flush(conn);
    return PSC_INPROGRESS;
}

psc_status_t psc_bundle_fetch(psc_conn_t *conn, const psc_send_args_t *args,
                              const uint8_t *packed, size_t len,
                              psc_request_t **request_p)
{
    psc_status_t status = psc_conn_usable(conn);
    psc_req_t *req = NULL;

    if (status == PSC_OK && args->n_iov == 0)
        return bundle_refuse(conn, args, packed, len, request_p);
    if (status == PSC_OK && args->n_iov > PSC_OFFER_PARTS_MAX)
        status = PSC_ERR_PROTOCOL;
    if (status == PSC_OK)
        status = bundle_request(conn, PSC_REQ_RECV, args, &req);
    if (status == PSC_OK)
        status = bundle_unpack(req, packed, len);
    if (!req || status == PSC_ERR_PROTOCOL || status == PSC_ERR_NO_MEMORY)
        return req ? psc_req_abandon(req, status) : status;
    psc_conn_sign(conn, &req->head.result);
    psc_req_stage_set(req,
                      status == PSC_OK ? PSC_STAGE_GET : PSC_STAGE_SEND_RTR);
    psc_count(conn, PSC_COUNTER_fetched, req->n_iov);
    *request_p = &req->head;
    psc_conn_queue(conn, req);
    psc_conn_flush(conn);
    return PSC_INPROGRESS;
}
