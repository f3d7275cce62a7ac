/* The pool of requests. Their ids are safe to send to a peer: an id that was
 * given back never stands for a request again. With the lock held. */
#ifndef PSCOMPY_CORE_REQUEST_H
#define PSCOMPY_CORE_REQUEST_H

#include "types/worker.h"

/* A request of the pool, clean; NULL: out of memory. */
psc_req_t *psc_req_create(psc_worker_t *worker, psc_req_kind_t kind);
/* Copies the pieces' descriptions (not the bytes), in place of those it had. */
psc_status_t psc_req_set_iov(psc_req_t *req, const psc_iov_t *iov,
                             size_t n_iov);
/* It is outstanding on this connection from now on. */
void psc_req_attach(psc_req_t *req, psc_conn_t *conn);
uint64_t psc_req_id(const psc_req_t *req);
/* The request at this place of the pool, also a free one. */
psc_req_t *psc_req_at(const psc_worker_t *worker, uint32_t index);
/* NULL for an id that does not stand for a live request. */
psc_req_t *psc_req_find(psc_worker_t *worker, uint64_t id);
/* The one door by which a stage changes. */
void psc_req_stage_set(psc_req_t *req, psc_stage_t stage);
const char *psc_req_stage_name(psc_stage_t stage);
/* Put it back into the pool. */
void psc_req_recycle(psc_req_t *req);
void psc_req_pool_destroy(psc_worker_t *worker);

#endif
