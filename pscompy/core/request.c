/* The request pool, ids, and the one way in which requests end. */
#include "request.h"

#include <stdlib.h>
#include <string.h>

#include "memory/access.h"

static const char *const stage_names[PSC_STAGE_COUNT] = {
#define PSC_STAGE_NAME(name) #name,
    PSC_STAGE_LIST(PSC_STAGE_NAME)
#undef PSC_STAGE_NAME
};

const char *psc_req_stage_name(psc_stage_t stage)
{
    return stage_names[stage];
}

void psc_req_stage_set(psc_req_t *req, psc_stage_t stage)
{
    req->stage = stage;
}

/* ---- the pool ---- */

static psc_status_t req_pool_grow(psc_worker_t *worker)
{
    psc_req_t **chunks, *chunk;

    chunks = realloc(worker->chunks, (worker->n_chunks + 1) * sizeof *chunks);
    if (!chunks)
        return PSC_ERR_NO_MEMORY;
    worker->chunks = chunks;
    chunk = calloc(PSC_REQ_CHUNK, sizeof *chunk);
    if (!chunk)
        return PSC_ERR_NO_MEMORY;
    chunks[worker->n_chunks++] = chunk;
    for (uint32_t i = 0; i < PSC_REQ_CHUNK; i++) {
        chunk[i].worker = worker;
        chunk[i].index = worker->n_reqs++;
        chunk[i].generation = 1;
        psc_list_push(&worker->free_reqs, &chunk[i].link);
    }
    return PSC_OK;
}

/* A free request holds no memory's registration and no key: what ends it has
 * given them back. */
static void req_bulk_reset(psc_bulk_t *bulk)
{
    bulk->remote_id = 0;
    bulk->len = bulk->issued = bulk->arrived = 0;
    bulk->inflight = 0;
    bulk->one_lane = bulk->waited = false;
}

psc_req_t *psc_req_create(psc_worker_t *worker, psc_req_kind_t kind)
{
    psc_req_t *req;

    if (psc_list_empty(&worker->free_reqs) && req_pool_grow(worker) != PSC_OK)
        return NULL;
    req = psc_container_of(worker->free_reqs.next, psc_req_t, link);
    psc_list_remove(&req->link);
    memset(&req->head, 0, sizeof req->head);
    req_bulk_reset(&req->bulk);
    req->rma.offset = 0; /* a rendezvous moves its data from the start */
    psc_list_init(&req->conn_link);
    psc_list_init(&req->done_link);
    req->kind = kind;
    req->stage = PSC_STAGE_IDLE;
    req->conn = req->source = NULL;
    req->in_use = true;
    req->released = req->urgent = req->confirm = false;
    req->exposed = false;
    req->payload = NULL;
    req->error = PSC_OK;
    req->aux = 0;
    req->iov = req->iov_room;
    req->n_iov = 0;
    req->total = 0;
    req->unexp = NULL;
    req->on_done = NULL;
    return req;
}

void psc_req_attach(psc_req_t *req, psc_conn_t *conn)
{
    req->conn = conn;
    if (!psc_link_listed(&req->conn_link))
        psc_list_push(&conn->active, &req->conn_link);
}

static void req_recycle(psc_req_t *req)
{
    if (req->iov != req->iov_room)
        free(req->iov);
    req->iov = req->iov_room;
    req->in_use = false;
    req->generation++;
    psc_list_push_front(&req->worker->free_reqs, &req->link);
}

void psc_req_pool_destroy(psc_worker_t *worker)
{
    for (uint32_t i = 0; i < worker->n_reqs; i++) {
        psc_req_t *req = psc_req_at(worker, i);

        if (req->in_use && req->iov != req->iov_room)
            free(req->iov);
    }
    for (uint32_t i = 0; i < worker->n_chunks; i++)
        free(worker->chunks[i]);
    free(worker->chunks);
}

uint64_t psc_req_id(const psc_req_t *req)
{
    return (uint64_t)req->generation << 32 | req->index;
}

psc_req_t *psc_req_at(const psc_worker_t *worker, uint32_t index)
{
    return &worker->chunks[index / PSC_REQ_CHUNK][index % PSC_REQ_CHUNK];
}

psc_req_t *psc_req_find(psc_worker_t *worker, uint64_t id)
{
    uint32_t index = (uint32_t)id;
    psc_req_t *req;

    if (index >= worker->n_reqs)
        return NULL;
    req = psc_req_at(worker, index);
    if (!req->in_use || req->generation != id >> 32)
        return NULL;
    return req;
}

/* ---- the end of a request ---- */

void psc_req_forget_lane(psc_req_t *req, const psc_lane_t *lane)
{
    psc_mem_t **mem = &req->bulk.mem[lane->index];
    psc_rkey_t **key = &req->bulk.keys.key[lane->index];

    if (*mem)
        lane->slot->ops->mem_deregister(lane->ep->iface, *mem);
    if (*key)
        lane->slot->ops->rkey_release(lane->ep, *key);
    *mem = NULL;
    *key = NULL;
}

/* Give back what the lanes know of this request's memory. */
static void req_bulk_release(psc_req_t *req)
{
    for (uint32_t i = 0; req->conn && i < req->conn->n_lanes; i++)
        psc_req_forget_lane(req, req->conn->lanes[i]);
}

static void req_tell(psc_req_t *req, psc_request_state_t state)
{
    psc_worker_t *worker = req->worker;

    __atomic_store_n(&req->head.state, state, __ATOMIC_RELEASE);
    if (req->head.flags & PSC_FLAG_NOTIFY &&
        !psc_link_listed(&req->done_link)) {
        psc_list_push(&worker->completions, &req->done_link);
        atomic_fetch_add(&worker->n_completions, 1);
    }
    psc_wake(worker, PSC_WAKE_NEWS);
}

void psc_req_finish(psc_req_t *req, psc_status_t status)
{
    req_bulk_release(req);
    psc_list_remove(&req->conn_link);
    psc_req_stage_set(req, PSC_STAGE_DONE);
    if (req->head.result.status == PSC_OK || status != PSC_OK)
        req->head.result.status = status;
    if (req->on_done) {
        req->on_done(req);
        req->released |= req->on_done != NULL;
    }
    if (req->released)
        req_recycle(req);
    else
        req_tell(req, PSC_REQUEST_DONE);
}

void psc_req_fail(psc_req_t *req, psc_status_t status)
{
    if (req->error == PSC_OK)
        req->error = status;
    psc_list_remove(&req->link);
    psc_req_stage_set(req, PSC_STAGE_ENDING);
    psc_access_settle(req);
}

void psc_req_matched(psc_req_t *req)
{
    req_tell(req, PSC_REQUEST_MATCHED);
}

void psc_req_release(psc_req_t *req)
{
    if (psc_link_listed(&req->done_link)) {
        psc_list_remove(&req->done_link);
        atomic_fetch_sub(&req->worker->n_completions, 1);
    }
    req->head.flags &= ~PSC_FLAG_NOTIFY;
    req->head.owner = NULL;
    if (req->head.state == PSC_REQUEST_DONE)
        req_recycle(req);
    else
        req->released = true;
}

/* ---- pieces ---- */

psc_status_t psc_req_set_iov(psc_req_t *req, const psc_iov_t *iov,
                             size_t n_iov)
{
    psc_iov_t *room = req->iov_room;

    if (n_iov > sizeof req->iov_room / sizeof *req->iov_room) {
        room = malloc(n_iov * sizeof *iov);
        if (!room)
            return PSC_ERR_NO_MEMORY;
    }
    if (n_iov)
        memcpy(room, iov, n_iov * sizeof *iov);
    if (req->iov != req->iov_room)
        free(req->iov);
    req->iov = room;
    req->n_iov = n_iov;
    req->total = psc_iov_total(iov, n_iov);
    return PSC_OK;
}

size_t psc_iov_slice(const psc_iov_t *iov, size_t n_iov, uint64_t offset,
                     size_t *len_p, psc_iov_t *out, size_t room)
{
    size_t n = 0, left = *len_p, covered = 0;

    for (size_t i = 0; i < n_iov && n < room && left > 0; i++) {
        size_t take;

        if (offset >= iov[i].len) {
            offset -= iov[i].len;
            continue;
        }
        take = iov[i].len - offset < left ? iov[i].len - offset : left;
        out[n].base = (char *)iov[i].base + offset;
        out[n++].len = take;
        covered += take;
        left -= take;
        offset = 0;
    }
    *len_p = covered;
    return n;
}

size_t psc_iov_write(const psc_iov_t *iov, size_t n_iov, uint64_t offset,
                     const void *from, size_t len)
{
    size_t done = 0;

    while (done < len) {
        psc_iov_t piece;
        size_t take = len - done;

        if (psc_iov_slice(iov, n_iov, offset + done, &take, &piece, 1) == 0)
            break;
        memcpy(piece.base, (const char *)from + done, take);
        done += take;
    }
    return done;
}
