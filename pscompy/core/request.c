/* The pool of requests, and their ids. finish.c ends them. */
#include "request.h"

#include <stdlib.h>
#include <string.h>

#include "completion.h"
#include "types/conn.h"

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

void psc_req_recycle(psc_req_t *req)
{
    if (req->iov != req->iov_room)
        free(req->iov);
    req->iov = req->iov_room;
    req->in_use = false;
    req->generation++;
    psc_list_push_front(&req->worker->free_reqs, &req->link);
}

/* Recycle the requests that were freed without the lock. */
static void req_reclaim(psc_worker_t *worker)
{
    psc_req_t *req = psc_completion_take_freed(worker), *next;

    for (; req; req = next) {
        next = req->next;
        psc_req_recycle(req);
    }
}

/* Before the pool grows, reuse requests that were freed while they were in the
 * completion queue. */
static psc_status_t req_pool_extend(psc_worker_t *worker)
{
    psc_completion_sift(worker);
    req_reclaim(worker);
    return psc_list_empty(&worker->free_reqs) ? req_pool_grow(worker) : PSC_OK;
}

/* Invariant: a free request owns no registration and no remote key;
 * psc_req_finish has released them. */
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

    req_reclaim(worker);
    if (psc_list_empty(&worker->free_reqs) && req_pool_extend(worker) != PSC_OK)
        return NULL;
    req = psc_container_of(worker->free_reqs.next, psc_req_t, link);
    psc_list_remove(&req->link);
    memset(&req->head, 0, sizeof req->head);
    req_bulk_reset(&req->bulk);
    req->rma.offset = 0; /* a rendezvous transfers its data from offset 0 */
    psc_list_init(&req->conn_link);
    req->kind = kind;
    req->stage = PSC_STAGE_IDLE;
    req->conn = req->source = NULL;
    req->in_use = true;
    atomic_store_explicit(&req->holds, PSC_HELD_BY_CORE | PSC_HELD_BY_CONSUMER,
                          memory_order_relaxed);
    req->inside = req->urgent = req->confirm = false;
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

/* ---- pieces ---- */

psc_status_t psc_req_set_iov(psc_req_t *req, const psc_iov_t *iov, size_t n_iov)
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
