#include "request.h"

#include <stdlib.h>
#include <string.h>

/* ---- the bulk: state that only some requests need ---- */

/* Returns the psc_bulk_t that all requests without one of their own share: it
 * is all zero, and never written. */
static psc_bulk_t *req_no_bulk(void)
{
    static const psc_bulk_t none;

    return (psc_bulk_t *)&none;
}

bool psc_req_extended(const psc_req_t *req)
{
    return req->bulk != req_no_bulk();
}

bool psc_req_extend(psc_req_t *req)
{
    psc_bulk_t *bulk;

    if (psc_req_extended(req))
        return true;
    /* malloc, because the C library's calloc does not use the thread's cache of
     * free memory */
    bulk = malloc(sizeof *bulk);
    if (!bulk)
        return false;
    *bulk = (psc_bulk_t){.req = req};
    psc_list_init(&bulk->work_link);
    psc_list_init(&bulk->access_link);
    req->bulk = bulk;
    return true;
}

void psc_req_unqueue(psc_req_t *req)
{
    if (psc_req_extended(req))
        psc_list_remove(&req->bulk->work_link);
}

static void req_shrink(psc_req_t *req)
{
    if (psc_req_extended(req)) {
        free(req->bulk->parts);
        free(req->bulk->taken.at);
        free(req->bulk->again.at);
        free(req->bulk);
    }
    req->bulk = req_no_bulk();
}

/* ---- the pool ---- */

void psc_requests_init(psc_requests_t *requests, psc_worker_t *worker)
{
    *requests = (psc_requests_t){.worker = worker};
    psc_list_init(&requests->free);
}

static psc_status_t req_pool_grow(psc_requests_t *requests)
{
    uint32_t n = requests->n_chunks;
    psc_req_chunk_t **chunks = requests->chunks, *chunk;

    /* the array of chunks is full: its capacity is a power of two */
    if ((n & (n - 1)) == 0) {
        chunks = realloc(chunks, (n ? 2 * n : 1) * sizeof *chunks);
        if (!chunks)
            return PSC_ERR_NO_MEMORY;
        requests->chunks = chunks;
    }
    chunk = calloc(1, sizeof *chunk);
    if (!chunk)
        return PSC_ERR_NO_MEMORY;
    chunks[requests->n_chunks++] = chunk;
    chunk->worker = requests->worker;
    chunk->first = n * PSC_REQ_CHUNK;
    for (uint32_t i = 0; i < PSC_REQ_CHUNK; i++) {
        psc_req_t *req = &chunk->requests[i];

        req->slot = (uint8_t)i;
        req->generation = 1;
        req->bulk = req_no_bulk();
        psc_list_push(&requests->free, &req->link);
    }
    return PSC_OK;
}

/* Free the request's copy of the array of pieces. */
static void req_drop_iov(psc_req_t *req)
{
    if (req->n_iov > 1)
        free(req->memory.list.pieces);
    req->n_iov = 0;
}

void psc_req_recycle(psc_requests_t *requests, psc_req_t *req)
{
    req_drop_iov(req);
    req_shrink(req);
    req->in_use = false;
    requests->n_used--;
    req->generation++;
    psc_list_push_front(&requests->free, &req->link);
}

/* Recycle the requests that were freed without the lock. */
static void req_reclaim(psc_requests_t *requests)
{
    psc_req_t *req = psc_completion_take_freed(&requests->completions), *next;

    for (; req; req = next) {
        next = req->place.other.next;
        psc_req_recycle(requests, req);
    }
}

/* Recycle all freed requests, also those that were freed while they were in the
 * completion queue. */
static void req_reclaim_all(psc_requests_t *requests)
{
    psc_completion_sift(&requests->completions);
    req_reclaim(requests);
}

uint32_t psc_requests_used(psc_requests_t *requests)
{
    req_reclaim_all(requests);
    return requests->n_used;
}

/* Ensure that the pool has a free request: recycle the requests that were
 * freed, and let the pool grow only if there are none. */
static psc_status_t req_pool_extend(psc_requests_t *requests)
{
    req_reclaim_all(requests);
    return psc_list_empty(&requests->free) ? req_pool_grow(requests) : PSC_OK;
}

psc_req_t *psc_req_create(psc_requests_t *requests, psc_req_kind_t kind)
{
    psc_req_t *req;

    req_reclaim(requests);
    if (psc_list_empty(&requests->free) && req_pool_extend(requests) != PSC_OK)
        return NULL;
    req = psc_container_of(requests->free.next, psc_req_t, link);
    psc_list_remove(&req->link);
    memset(&req->head, 0, sizeof req->head);
    req->kind = kind;
    req->stage = PSC_STAGE_IDLE;
    psc_req_set_conn(req, NULL);
    psc_req_set_unexp(req, NULL);
    req->in_use = true;
    requests->n_used++;
    atomic_store_explicit(&req->holds, PSC_HELD_BY_CORE | PSC_HELD_BY_CONSUMER,
                          memory_order_relaxed);
    req->inside = req->confirm = req->remote_writable = false;
    req->error = PSC_OK;
    req->memory.list.total = 0;
    return req;
}

psc_req_t *psc_req_create_bulk(psc_requests_t *requests, psc_req_kind_t kind)
{
    psc_req_t *req = psc_req_create(requests, kind);

    if (!req || psc_req_extend(req))
        return req;
    psc_req_recycle(requests, req);
    return NULL;
}

void psc_requests_destroy(psc_requests_t *requests)
{
    for (uint32_t i = 0; i < psc_requests_count(requests); i++) {
        psc_req_t *req = psc_req_at(requests, i);

        req_drop_iov(req);
        req_shrink(req);
    }
    for (uint32_t i = 0; i < requests->n_chunks; i++)
        free(requests->chunks[i]);
    free(requests->chunks);
}

uint64_t psc_req_id(const psc_req_t *req)
{
    return (uint64_t)req->generation << 32 |
           (psc_req_chunk(req)->first + req->slot);
}

psc_req_t *psc_req_at(const psc_requests_t *requests, uint32_t index)
{
    return &requests->chunks[index / PSC_REQ_CHUNK]
                ->requests[index % PSC_REQ_CHUNK];
}

psc_req_t *psc_req_find(const psc_requests_t *requests, uint64_t id)
{
    uint32_t index = (uint32_t)id;
    psc_req_t *req;

    if (index >= psc_requests_count(requests))
        return NULL;
    req = psc_req_at(requests, index);
    if (!req->in_use || req->generation != id >> 32)
        return NULL;
    return req;
}

/* ---- pieces ---- */

psc_status_t psc_req_set_iov(psc_req_t *req, const psc_iov_t *iov, size_t n_iov)
{
    psc_iov_t *room = NULL;

    if (n_iov > PSC_IOV_MAX)
        return PSC_ERR_INVALID;
    if (n_iov > 1) {
        room = malloc(n_iov * sizeof *iov);
        if (!room)
            return PSC_ERR_NO_MEMORY;
        memcpy(room, iov, n_iov * sizeof *iov);
    }
    req_drop_iov(req);
    req->memory.list.pieces = n_iov == 1 ? iov->base : room;
    req->memory.list.total = psc_iov_total(iov, n_iov);
    req->n_iov = (uint32_t)n_iov;
    return PSC_OK;
}
