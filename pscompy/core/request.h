/* The requests of a worker: their pool, and the queue of those that are done.
 * Request ids are safe to send to a peer: an id that was released never
 * identifies a request again. With the lock held. */
#pragma once

#include "completion.h"

typedef struct psc_requests {
    psc_worker_t *worker;
    psc_req_chunk_t **chunks;
    uint32_t n_chunks;
    /* requests that are in use, or that were freed and not recycled yet */
    uint32_t n_used;
    psc_list_t free;
    psc_completions_t completions;
} psc_requests_t;

void psc_requests_init(psc_requests_t *requests, psc_worker_t *worker);
void psc_requests_destroy(psc_requests_t *requests);
/* Number of requests in the pool, in use or not. */
static inline uint32_t psc_requests_count(const psc_requests_t *requests)
{
    return requests->n_chunks * PSC_REQ_CHUNK;
}

/* Number of requests in use, after those that were freed are recycled. */
uint32_t psc_requests_used(psc_requests_t *requests);
/* Take a request from the pool. Returns NULL if memory is short. */
psc_req_t *psc_req_create(psc_requests_t *requests, psc_req_kind_t kind);
/* As psc_req_create, with memory for `bulk`: for operations that may be more
 * than an eager message into a posted receive. */
psc_req_t *psc_req_create_bulk(psc_requests_t *requests, psc_req_kind_t kind);
/* Give the request memory for `bulk`, unless it has some. A request without
 * such memory has a shared `bulk`, which is all zero and must not be written.
 * Returns false if memory is short. */
bool psc_req_extend(psc_req_t *req);
bool psc_req_extended(const psc_req_t *req);
/* Take the request out of the connection's work queue, if it is there. */
void psc_req_unqueue(psc_req_t *req);
/* Put a request back into the pool. */
void psc_req_recycle(psc_requests_t *requests, psc_req_t *req);
/* Replace the request's pieces by a copy of the array iov (not of the
 * bytes). */
psc_status_t psc_req_set_iov(psc_req_t *req, const psc_iov_t *iov,
                             size_t n_iov);
uint64_t psc_req_id(const psc_req_t *req);
/* Returns the request with this index in the pool, even if it is free. */
psc_req_t *psc_req_at(const psc_requests_t *requests, uint32_t index);
/* Returns the request with this id; NULL if the id does not identify a request
 * in use. */
psc_req_t *psc_req_find(const psc_requests_t *requests, uint64_t id);
