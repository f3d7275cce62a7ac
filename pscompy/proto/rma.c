#include "rma.h"

#include <string.h>

#include "../core/conn.h"
#include "../core/finish.h"
#include "../core/memory/memory.h"
#include "../core/request.h"
#include "credit.h"
#include "rndv.h"
#include "stripe.h"

/* Most puts and gets by messages that a side has under way at its peer; its
 * others wait. */
#define RMA_OUT_MAX 1024u
/* Most of them that a peer may have under way here: some more, because a
 * request may end here after it has ended at the peer. */
#define RMA_IN_MAX (16 * RMA_OUT_MAX)

/* ---- the origin ---- */

static bool rma_key_fits(const psc_region_packed_key_t *key,
                         const psc_iface_slot_t *slot)
{
    return key->rail == slot->attr.rail &&
           strncmp(key->transport, slot->ops->name, sizeof key->transport) == 0;
}

/* Returns true if the lane may carry the access: the main lane, or, if lanes
 * may fail, any that works. A put that was in flight on a lost lane is made
 * again over another lane, so the first attempt must not reach the region any
 * more. */
static bool rma_may_use(psc_conn_t *conn, const psc_lane_t *lane, bool is_put)
{
    uint64_t caps = lane->slot->attr.caps;

    if (!(caps & (is_put ? PSC_CAP_PUT : PSC_CAP_GET)))
        return false;
    if (!conn->replay)
        return lane == psc_conn_main_lane(conn);
    return psc_stripe_usable(lane) && (!is_put || caps & PSC_CAP_PUT_ENDS);
}

/* Unpack one key of the region for the lanes that it fits; a lane whose
 * transport cannot use the key gets none. Returns false if the key is
 * invalid. */
static bool rma_unpack_key(psc_req_t *req, const psc_region_packed_key_t *key,
                           const uint8_t *at)
{
    psc_conn_t *conn = psc_req_conn(req);

    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        psc_lane_t *lane = conn->lanes[i];
        psc_rkey_t **slot = &req->bulk->keys.key[i];

        if (!*slot && rma_key_fits(key, lane->slot) &&
            rma_may_use(conn, lane, req->kind == PSC_REQ_SEND) &&
            lane->slot->ops->rkey_unpack(lane->ep, at, key->len, slot) ==
                PSC_ERR_INVALID)
            return false;
    }
    return true;
}

/* Unpack the region's keys. */
static psc_status_t rma_unpack(psc_req_t *req, const psc_rma_args_t *rma,
                               uint32_t n_keys)
{
    const uint8_t *at = rma->packed + sizeof(psc_region_packed_t);
    size_t left = rma->packed_len - sizeof(psc_region_packed_t);

    for (uint32_t i = 0; i < n_keys; i++) {
        psc_region_packed_key_t key;

        if (left < sizeof key)
            return PSC_ERR_INVALID;
        memcpy(&key, at, sizeof key);
        at += sizeof key;
        left -= sizeof key;
        if (key.len > left || !rma_unpack_key(req, &key, at))
            return PSC_ERR_INVALID;
        at += key.len;
        left -= key.len;
    }
    return PSC_OK;
}

static bool rma_has_key(const psc_req_t *req)
{
    for (uint32_t i = 0; i < psc_req_conn(req)->n_lanes; i++) {
        if (req->bulk->keys.key[i])
            return true;
    }
    return false;
}

/* Have the target move the bytes, by messages. */
static void rma_emulate(psc_req_t *req)
{
    psc_count(psc_req_conn(req), PSC_COUNTER_rma_emulated, 1);
    req->confirm = req->kind == PSC_REQ_SEND;
    req->bulk->one_lane = true;
    psc_req_stage_set(req, PSC_STAGE_RMA_REQUEST);
}

static psc_status_t rma_choose(psc_req_t *req, const psc_rma_args_t *rma,
                               const psc_region_packed_t *head)
{
    psc_keyed_t keyed = psc_rndv_keyed(req);
    psc_status_t status = rma_unpack(req, rma, head->n_keys);

    if (status != PSC_OK)
        return status;
    status = psc_rndv_register_local(&keyed);
    if (status != PSC_OK || !rma_has_key(req)) {
        rma_emulate(req);
        return PSC_OK;
    }
    psc_count(psc_req_conn(req),
              rma->is_put ? PSC_COUNTER_rma_put : PSC_COUNTER_rma_get, 1);
    req->bulk->one_lane = !psc_req_conn(req)->replay;
    psc_req_stage_set(req, PSC_STAGE_RMA_DIRECT);
    return PSC_OK;
}

psc_status_t psc_rma_start(psc_conn_t *conn, const psc_send_args_t *args,
                           const psc_rma_args_t *rma, psc_request_t **request_p)
{
    psc_region_packed_t head;
    psc_req_t *req;
    psc_status_t status;

    if (conn->state != PSC_CONN_UP)
        return conn->status != PSC_OK ? conn->status : PSC_ERR_NO_RESOURCE;
    if (args->n_iov != 1)
        return PSC_ERR_INVALID;
    status = psc_region_parse(conn->worker, rma->packed, rma->packed_len,
                              rma->offset, args->iov->len, &head);
    if (status != PSC_OK || args->iov->len == 0)
        return status;
    req = psc_req_create_bulk(&conn->worker->requests,
                              rma->is_put ? PSC_REQ_SEND : PSC_REQ_RECV);
    if (!req)
        return PSC_ERR_NO_MEMORY;
    psc_req_set_iov(req, args->iov, 1);
    req->bulk->len = psc_req_total(req);
    req->bulk->one_lane = true;
    req->bulk->rma.region = head.id;
    req->bulk->rma.nonce = head.nonce;
    req->bulk->rma.offset = rma->offset;
    req->head.flags = args->flags;
    req->head.owner = args->owner;
    psc_req_attach(req, conn);
    status = rma_choose(req, rma, &head);
    if (status != PSC_OK) {
        psc_req_release(req);
        psc_req_finish(req, status);
        return status;
    }
    *request_p = &req->head;
    psc_conn_queue(conn, req);
    psc_conn_flush(conn);
    return PSC_INPROGRESS;
}

/* Puts are flushed, unless they are spread over lanes that may fail: such lanes
 * complete a put only when the target has its bytes (psc_lane_replaceable). */
static psc_status_t rma_direct(psc_req_t *req)
{
    bool is_put = req->kind == PSC_REQ_SEND;
    psc_status_t status = psc_rndv_move(req, is_put);

    if (status == PSC_ERR_UNSUPPORTED) {
        psc_rndv_begin_again(req);
        rma_emulate(req);
        return PSC_OK;
    }
    if (status != PSC_OK)
        return status;
    if (is_put && req->bulk->one_lane) {
        psc_req_stage_set(req, PSC_STAGE_FLUSH);
        return PSC_OK;
    }
    psc_req_finish(req, psc_rndv_one_sided_result(req));
    return PSC_INPROGRESS;
}

/* A request of this side has ended: send one that waits. */
static void rma_ended(psc_req_t *req)
{
    psc_conn_t *conn = psc_req_conn(req);
    psc_link_t *link;

    req->bulk->on_done = NULL;
    conn->emulated.out--;
    if (psc_conn_ended(conn) || !(link = psc_list_pop(&conn->emulated.waiting)))
        return;
    psc_conn_queue(conn, psc_container_of(link, psc_bulk_t, work_link)->req);
}

/* A request that has to wait does so outside of the queue of control messages,
 * because the peer needs those to end the requests before it. */
static psc_status_t rma_send_request(psc_req_t *req)
{
    psc_emulated_t *emulated = &psc_req_conn(req)->emulated;
    bool is_put = req->kind == PSC_REQ_SEND;
    psc_wire_rma_t wire = {.request_id = psc_req_id(req),
                           .region = req->bulk->rma.region,
                           .nonce = req->bulk->rma.nonce,
                           .offset = req->bulk->rma.offset,
                           .len = psc_req_total(req)};
    psc_status_t status;

    if (emulated->out >= RMA_OUT_MAX) {
        psc_list_push(&emulated->waiting, &req->bulk->work_link);
        return PSC_INPROGRESS;
    }
    status = psc_credit_send(psc_req_conn(req),
                             is_put ? PSC_WIRE_RMA_PUT : PSC_WIRE_RMA_GET,
                             &wire, sizeof wire, NULL, 0);
    if (status != PSC_OK)
        return status;
    emulated->out++;
    req->bulk->on_done = rma_ended;
    psc_req_stage_set(req, is_put ? PSC_STAGE_AWAIT_RTR : PSC_STAGE_AWAIT_DATA);
    return PSC_INPROGRESS;
}

/* ---- the target ---- */

static void rma_served(psc_req_t *req)
{
    psc_target_leave(req);
    psc_req_conn(req)->emulated.in--;
}

/* Create the target's request that serves the origin's. */
static psc_req_t *rma_answer(psc_lane_t *lane, const psc_wire_rma_t *wire,
                             psc_req_kind_t kind, psc_stage_t stage)
{
    psc_req_t *req = psc_req_create_bulk(&lane->worker->requests, kind);

    if (!req)
        return NULL;
    lane->conn->emulated.in++;
    req->bulk->on_done = rma_served;
    req->bulk->one_lane = true;
    req->confirm = stage == PSC_STAGE_SEND_RTR;
    req->bulk->remote_id = wire->request_id;
    req->bulk->len = wire->len;
    psc_req_attach(req, lane->conn);
    psc_req_stage_set(req, stage);
    psc_conn_queue(lane->conn, req);
    return req;
}

static psc_status_t rma_refuse(psc_lane_t *lane, const psc_wire_rma_t *wire)
{
    psc_req_t *req = rma_answer(lane, wire, PSC_REQ_EVENT, PSC_STAGE_SEND_FIN);

    if (!req)
        return PSC_ERR_NO_MEMORY;
    req->error = PSC_ERR_REGION;
    psc_count(lane->conn, PSC_COUNTER_rma_refused, 1);
    return PSC_OK;
}

static psc_status_t rma_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_rma_t *wire = am->header;
    psc_region_t *region = psc_region_find(lane->worker, wire);
    bool is_put = am->id == PSC_WIRE_RMA_PUT;
    psc_req_t *req;

    if (lane->conn->emulated.in >= RMA_IN_MAX)
        return PSC_ERR_PROTOCOL;
    if (!region)
        return rma_refuse(lane, wire);
    req = rma_answer(lane, wire, is_put ? PSC_REQ_RECV : PSC_REQ_SEND,
                     is_put ? PSC_STAGE_SEND_RTR : PSC_STAGE_FRAG);
    if (!req)
        return PSC_ERR_NO_MEMORY;
    psc_target_admit(&region->target, req);
    return psc_req_set_iov(
        req, &(psc_iov_t){region->base + wire->offset, wire->len}, 1);
}

const psc_proto_t psc_rma = {
    .name = "rma",
    .messages =
        (const psc_proto_message_t[]){
            {PSC_WIRE_RMA_PUT, sizeof(psc_wire_rma_t), rma_arrived},
            {PSC_WIRE_RMA_GET, sizeof(psc_wire_rma_t), rma_arrived},
            {0}},
    .stages =
        (const psc_proto_stage_t[]){{PSC_STAGE_RMA_REQUEST, rma_send_request},
                                    {PSC_STAGE_RMA_DIRECT, rma_direct},
                                    {0}},
};
