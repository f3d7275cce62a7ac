/* Memory that peers reach, and how it is taken back. Whatever ends with memory
 * of a program (a region that is closed, a request that fails) ends it here:
 *
 *  - A payload that is arriving (am_begin ... am_end) is cut: the transport
 *    discards the rest.
 *  - An operation that a lane has in flight is waited for.
 *  - Where the peer writes by itself, its keys are revoked first, and a piece
 *    that it is writing at this moment is waited for (mem_revoke).
 *
 * Only then does the memory belong to its owner again. */
#ifndef PSCOMPY_CORE_ACCESS_H
#define PSCOMPY_CORE_ACCESS_H

#include "../types/conn.h"

/* ---- memory that peers reach by messages: a region ---- */

/* The accesses of peers are requests of ours, each of which serves one. */
typedef struct psc_target {
    psc_list_t accesses;
    bool closed;
} psc_target_t;

void psc_target_init(psc_target_t *target);
/* This request reads or writes the memory until it is done. */
void psc_target_admit(psc_target_t *target, psc_req_t *req);
/* The request is done. */
void psc_target_leave(psc_req_t *req);
/* Refuse the accesses: each origin gets PSC_ERR_INVALID by the FIN, what it
 * still sends is discarded. PSC_OK: none reaches the memory any more.
 * PSC_INPROGRESS: a lane still reads it; call again after progress. */
psc_status_t psc_target_close(psc_target_t *target);

/* ---- the payload that is arriving on a lane ---- */

/* What is still to come of it has no place. */
void psc_landing_cut(psc_lane_t *lane);
/* The same, and its bounce buffer goes. */
void psc_landing_drop(psc_lane_t *lane);

/* ---- requests that have failed ---- */

/* Ends a request with an error as soon as nothing reaches its memory any more:
 * no operation of a lane, and no peer that was given keys. Until then it is not
 * done, and its memory stays with it. */
void psc_req_fail(psc_req_t *req, psc_status_t status);
/* Finishes a request that psc_req_fail was called for, unless a lane has an
 * operation of it in flight, or a peer may be writing into its memory: then it
 * waits on the worker's list `revoking`. */
void psc_access_settle(psc_req_t *req);
/* Looks again at the requests that wait for peers. */
void psc_access_progress(psc_worker_t *worker);
/* Revokes the keys that a lane which is being closed has given away. Returns
 * INPROGRESS while a peer may be writing by one of them: the lane's endpoint
 * must stay until then. */
psc_status_t psc_access_lane_end(const psc_lane_t *lane);
/* The lane's endpoint has stopped, so nothing reaches memory through it. */
void psc_access_lane_ended(psc_lane_t *lane);
/* How many failed requests a peer may still write to. */
unsigned psc_access_count(const psc_worker_t *worker);

#endif
