#include "rma.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "../memory/access.h"
#include "pscompy/transport/kit/siphash.h"
#include "credit.h"

#define RMA_MAGIC 0x33524d50u /* "PMR3" */

struct psc_region {
    psc_link_t link;
    psc_worker_t *worker;
    uint64_t id, nonce;
    uint8_t *base;
    uint64_t len;
    psc_target_t target; /* what messages serve of it */
    psc_mem_t *mem[PSC_IFACES_MAX];
};

/* A packed region: this, then `n_keys` keys of {whose, length, bytes}. */
typedef struct rma_packed {
    uint8_t check[PSC_SIPHASH_SIZE]; /* of all that follows */
    uint32_t magic;
    uint32_t n_keys;
    uint64_t id, nonce, len;
} rma_packed_t;

typedef struct rma_packed_key {
    char transport[15];
    uint8_t len;
    uint16_t rail;
} rma_packed_key_t;

/* ---- regions ---- */

static bool rma_capable(const psc_iface_slot_t *slot)
{
    return slot->attr.caps & (PSC_CAP_PUT | PSC_CAP_GET);
}

psc_status_t psc_region_create(psc_worker_t *worker, void *base, size_t len,
                               psc_region_t **region_p)
{
    psc_region_t *region = calloc(1, sizeof *region);

    if (!region)
        return PSC_ERR_NO_MEMORY;
    region->worker = worker;
    region->id = ++worker->next_region;
    region->base = base;
    region->len = len;
    psc_target_init(&region->target);
    if (getrandom(&region->nonce, sizeof region->nonce, 0) !=
        sizeof region->nonce) {
        free(region);
        return PSC_ERR_NO_RESOURCE;
    }
    for (int i = 0; i < worker->n_ifaces && len > 0; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        if (rma_capable(slot) &&
            slot->ops->mem_register(slot->iface, NULL, base, len,
                                    &region->mem[i]) != PSC_OK)
            region->mem[i] = NULL; /* messages serve it */
    }
    psc_list_push(&worker->regions, &region->link);
    *region_p = region;
    return PSC_OK;
}

/* The region's keys are refused, and no peer is writing by one. */
static psc_status_t region_revoke(psc_region_t *region)
{
    psc_status_t status = PSC_OK;

    for (int i = 0; i < region->worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &region->worker->ifaces[i];

        if (region->mem[i] && slot->ops->mem_revoke &&
            slot->ops->mem_revoke(slot->iface, region->mem[i]) ==
                PSC_INPROGRESS)
            status = PSC_INPROGRESS;
    }
    return status;
}

static void region_free(psc_region_t *region)
{
    for (int i = 0; i < region->worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &region->worker->ifaces[i];

        if (region->mem[i])
            slot->ops->mem_deregister(slot->iface, region->mem[i]);
    }
    psc_list_for_each(req, &region->target.accesses, psc_req_t, access_link)
        psc_target_leave(req); /* it has no memory any more */
    psc_list_remove(&region->link);
    free(region);
}

psc_status_t psc_region_close(psc_region_t *region)
{
    psc_status_t keys = region_revoke(region);
    psc_status_t messages = psc_target_close(&region->target);

    if (keys == PSC_INPROGRESS || messages == PSC_INPROGRESS)
        return PSC_INPROGRESS;
    region_free(region);
    return PSC_OK;
}

psc_worker_t *psc_region_worker(const psc_region_t *region)
{
    return region->worker;
}

static psc_status_t rma_pack_key(psc_region_t *region, int iface,
                                 uint8_t *packed, size_t *len_p)
{
    psc_iface_slot_t *slot = &region->worker->ifaces[iface];
    rma_packed_key_t head = {.rail = (uint16_t)slot->attr.rail};
    size_t len = PSC_RKEY_MAX;
    psc_status_t status =
        slot->ops->rkey_pack(slot->iface, region->mem[iface],
                             packed + sizeof head, &len);

    if (status != PSC_OK)
        return status;
    memcpy(head.transport, slot->ops->name,
           strnlen(slot->ops->name, sizeof head.transport));
    head.len = (uint8_t)len;
    memcpy(packed, &head, sizeof head);
    *len_p = sizeof head + len;
    return PSC_OK;
}

static void rma_check(const psc_worker_t *worker, const uint8_t *packed,
                      size_t len, uint8_t *check)
{
    psc_siphash(worker->secret, packed + PSC_SIPHASH_SIZE,
                len - PSC_SIPHASH_SIZE, check);
}

psc_status_t psc_region_pack(psc_region_t *region, uint8_t *packed,
                             size_t *len_p)
{
    rma_packed_t head = {.magic = RMA_MAGIC,
                         .id = region->id,
                         .nonce = region->nonce,
                         .len = region->len};
    size_t at = sizeof head, len;

    for (int i = 0; i < region->worker->n_ifaces; i++) {
        if (!region->mem[i])
            continue;
        if (*len_p - at < sizeof(rma_packed_key_t) + PSC_RKEY_MAX)
            return PSC_ERR_INVALID;
        if (rma_pack_key(region, i, packed + at, &len) != PSC_OK)
            continue;
        at += len;
        head.n_keys++;
    }
    memcpy(packed, &head, sizeof head);
    rma_check(region->worker, packed, at, packed);
    *len_p = at;
    return PSC_OK;
}

/* ---- the origin ---- */

/* Nothing in a key is believed before its check is right. */
static psc_status_t rma_parse(const psc_worker_t *worker,
                              const psc_rma_args_t *rma, uint64_t len,
                              rma_packed_t *head)
{
    uint8_t check[PSC_SIPHASH_SIZE];

    if (rma->packed_len < sizeof *head)
        return PSC_ERR_KEY;
    memcpy(head, rma->packed, sizeof *head);
    rma_check(worker, rma->packed, rma->packed_len, check);
    if (head->magic != RMA_MAGIC || !psc_siphash_equal(check, head->check))
        return PSC_ERR_KEY;
    if (rma->offset > head->len || len > head->len - rma->offset)
        return PSC_ERR_BOUNDS;
    return PSC_OK;
}

uint64_t psc_region_size(const uint8_t *packed, size_t len)
{
    rma_packed_t head;

    if (len < sizeof head)
        return 0;
    memcpy(&head, packed, sizeof head);
    return head.len;
}

static bool rma_key_fits(const rma_packed_key_t *key,
                         const psc_iface_slot_t *slot)
{
    return key->rail == slot->attr.rail &&
           strncmp(key->transport, slot->ops->name, sizeof key->transport) == 0;
}

/* The key for lane 0, unpacked; UNSUPPORTED: use messages. */
static psc_status_t rma_unpack(psc_req_t *req, const psc_rma_args_t *rma,
                               uint32_t n_keys)
{
    psc_lane_t *lane = psc_conn_main_lane(req->conn);
    const uint8_t *at = rma->packed + sizeof(rma_packed_t);
    size_t left = rma->packed_len - sizeof(rma_packed_t);

    for (uint32_t i = 0; i < n_keys; i++) {
        rma_packed_key_t key;

        if (left < sizeof key)
            return PSC_ERR_INVALID;
        memcpy(&key, at, sizeof key);
        at += sizeof key;
        left -= sizeof key;
        if (key.len > left)
            return PSC_ERR_INVALID;
        if (rma_key_fits(&key, lane->slot))
            return lane->slot->ops->rkey_unpack(lane->ep, at, key.len,
                                                &req->bulk.keys.key[0]);
        at += key.len;
        left -= key.len;
    }
    return PSC_ERR_UNSUPPORTED;
}

static psc_status_t rma_choose(psc_req_t *req, const psc_rma_args_t *rma,
                               const rma_packed_t *head)
{
    psc_lane_t *lane = psc_conn_main_lane(req->conn);
    uint64_t cap = rma->is_put ? PSC_CAP_PUT : PSC_CAP_GET;
    psc_status_t status = PSC_ERR_UNSUPPORTED;

    if (req->total > 0 && lane->slot->attr.caps & cap)
        status = rma_unpack(req, rma, head->n_keys);
    if (status == PSC_OK)
        status = psc_rndv_register_local(req);
    if (status == PSC_OK) {
        psc_count(req->conn,
                  rma->is_put ? PSC_COUNTER_rma_put : PSC_COUNTER_rma_get, 1);
        psc_req_stage_set(req, PSC_STAGE_RMA_DIRECT);
        return PSC_OK;
    }
    if (status == PSC_ERR_INVALID)
        return status;
    psc_count(req->conn, PSC_COUNTER_rma_emulated, 1);
    req->confirm = rma->is_put;
    psc_req_stage_set(req, PSC_STAGE_RMA_REQUEST);
    return PSC_OK;
}

psc_status_t psc_rma_start(psc_conn_t *conn, const psc_send_args_t *args,
                           const psc_rma_args_t *rma,
                           psc_request_t **request_p)
{
    rma_packed_t head;
    psc_req_t *req;
    psc_status_t status;

    if (conn->state != PSC_CONN_UP)
        return conn->status != PSC_OK ? conn->status : PSC_ERR_NO_RESOURCE;
    if (args->n_iov != 1)
        return PSC_ERR_INVALID;
    status = rma_parse(conn->worker, rma, args->iov->len, &head);
    if (status != PSC_OK || args->iov->len == 0)
        return status;
    req = psc_req_create(conn->worker,
                         rma->is_put ? PSC_REQ_SEND : PSC_REQ_RECV);
    if (!req)
        return PSC_ERR_NO_MEMORY;
    psc_req_set_iov(req, args->iov, 1);
    req->bulk.len = req->total;
    req->bulk.one_lane = true;
    req->rma.region = head.id;
    req->rma.nonce = head.nonce;
    req->rma.offset = rma->offset;
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
    psc_conn_queue(conn, req, true);
    psc_conn_flush(conn);
    return PSC_INPROGRESS;
}

psc_status_t psc_rma_direct(psc_req_t *req)
{
    psc_status_t status;

    if (req->kind == PSC_REQ_SEND) {
        status = psc_rndv_move_put(req);
        if (status == PSC_OK)
            psc_req_stage_set(req, PSC_STAGE_FLUSH);
        return status;
    }
    status = psc_rndv_move_get(req);
    if (status != PSC_OK)
        return status;
    psc_req_finish(req, req->error);
    return PSC_INPROGRESS;
}

psc_status_t psc_rma_send_request(psc_req_t *req)
{
    psc_conn_t *conn = req->conn;
    bool is_put = req->kind == PSC_REQ_SEND;
    psc_wire_rma_t wire = {.credit = psc_credit_stamp(conn),
                           .request_id = psc_req_id(req),
                           .region = req->rma.region,
                           .nonce = req->rma.nonce,
                           .offset = req->rma.offset,
                           .len = req->total};
    psc_status_t status = psc_lane_send(
        psc_conn_main_lane(conn), is_put ? PSC_WIRE_RMA_PUT : PSC_WIRE_RMA_GET,
        &wire, sizeof wire, NULL, 0);

    if (status != PSC_OK)
        return status;
    psc_req_stage_set(req, is_put ? PSC_STAGE_AWAIT_RTR : PSC_STAGE_AWAIT_DATA);
    return PSC_INPROGRESS;
}

/* ---- the target ---- */

static psc_region_t *rma_find(psc_worker_t *worker, const psc_wire_rma_t *wire)
{
    psc_list_for_each(region, &worker->regions, psc_region_t, link) {
        if (region->id == wire->region && region->nonce == wire->nonce &&
            !region->target.closed &&
            wire->offset <= region->len &&
            wire->len <= region->len - wire->offset)
            return region;
    }
    return NULL;
}

static void rma_served(psc_req_t *req)
{
    psc_target_leave(req);
}

/* A request of the target's own that answers the origin's. */
static psc_req_t *rma_answer(psc_lane_t *lane, const psc_wire_rma_t *wire,
                             psc_req_kind_t kind, psc_stage_t stage)
{
    psc_req_t *req = psc_req_create(lane->worker, kind);

    if (!req)
        return NULL;
    psc_list_init(&req->access_link);
    req->on_done = rma_served;
    req->confirm = stage == PSC_STAGE_SEND_RTR;
    req->bulk.remote_id = wire->request_id;
    req->bulk.len = wire->len;
    psc_req_attach(req, lane->conn);
    psc_req_stage_set(req, stage);
    psc_conn_queue(lane->conn, req, true);
    return req;
}

static psc_status_t rma_refuse(psc_lane_t *lane, const psc_wire_rma_t *wire)
{
    psc_req_t *req = rma_answer(lane, wire, PSC_REQ_EVENT, PSC_STAGE_SEND_FIN);

    if (!req)
        return PSC_ERR_NO_MEMORY;
    req->error = PSC_ERR_INVALID;
    psc_count(lane->conn, PSC_COUNTER_rma_refused, 1);
    return PSC_OK;
}

static psc_status_t rma_serve(psc_lane_t *lane, const psc_am_t *am,
                              psc_req_kind_t kind, psc_stage_t stage)
{
    const psc_wire_rma_t *wire = am->header;
    psc_region_t *region = rma_find(lane->worker, wire);
    psc_req_t *req;

    if (!region)
        return rma_refuse(lane, wire);
    req = rma_answer(lane, wire, kind, stage);
    if (!req)
        return PSC_ERR_NO_MEMORY;
    psc_target_admit(&region->target, req);
    return psc_req_set_iov(
        req, &(psc_iov_t){region->base + wire->offset, wire->len}, 1);
}

psc_status_t psc_rma_put_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    return rma_serve(lane, am, PSC_REQ_RECV, PSC_STAGE_SEND_RTR);
}

psc_status_t psc_rma_get_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    return rma_serve(lane, am, PSC_REQ_SEND, PSC_STAGE_FRAG);
}

unsigned psc_rma_worker_revoke(psc_worker_t *worker)
{
    unsigned n = 0;

    psc_list_for_each(region, &worker->regions, psc_region_t, link)
        n += region_revoke(region) == PSC_INPROGRESS;
    return n;
}

void psc_rma_worker_destroy(psc_worker_t *worker)
{
    psc_list_for_each(region, &worker->regions, psc_region_t, link)
        region_free(region);
}
