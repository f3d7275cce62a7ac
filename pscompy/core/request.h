/* The pool of requests. Request ids are safe to send to a peer: an id that was
 * released never identifies a request again. With the lock held. */
#ifndef PSCOMPY_CORE_REQUEST_H
#define PSCOMPY_CORE_REQUEST_H

#include "types/worker.h"

/* Take a request from the pool. Returns NULL if memory is short. */
psc_req_t *psc_req_create(psc_worker_t *worker, psc_req_kind_t kind);
/* Replace the request's pieces by a copy of iov (not of the bytes). */
psc_status_t psc_req_set_iov(psc_req_t *req, const psc_iov_t *iov,
                             size_t n_iov);
/* Add the request to the connection's outstanding requests. */
void psc_req_attach(psc_req_t *req, psc_conn_t *conn);
uint64_t psc_req_id(const psc_req_t *req);
/* The request with this index in the pool, even if it is free. */
psc_req_t *psc_req_at(const psc_worker_t *worker, uint32_t index);
/* Returns NULL if the id does not identify a request in use. */
psc_req_t *psc_req_find(psc_worker_t *worker, uint64_t id);
/* The only function that changes a request's stage. */
void psc_req_stage_set(psc_req_t *req, psc_stage_t stage);
const char *psc_req_stage_name(psc_stage_t stage);
/* Put the request back into the pool. */
void psc_req_recycle(psc_req_t *req);
void psc_req_pool_destroy(psc_worker_t *worker);

#endif
