/* Memory that peers access, and how it is taken back. Code that takes memory
 * away from peers (a region is closed, a request fails) uses these functions:
 *
 *  - A payload that is arriving (am_begin ... am_end) is cut: the transport
 *    discards the rest.
 *  - An operation that a lane has in flight is waited for.
 *  - If the peer writes directly, its keys are revoked first, and a write that
 *    is in flight is waited for (mem_revoke).
 *
 * Only then may the owner reuse the memory. */
#pragma once

#include "../types/connection.h"

/* ---- memory that peers reach by messages: a region ---- */

/* A region, as the target of remote accesses. Each access is served by a local
 * request in `accesses`. */
typedef struct psc_target {
    psc_list_t accesses;
    bool closed;
} psc_target_t;

void psc_target_init(psc_target_t *target);
/* Add an access to the region's list: a local request that reads or writes the
 * region's memory until it is done. */
void psc_target_admit(psc_target_t *target, psc_req_t *req);
/* Remove an access (its local request) that is done from the region's list. */
void psc_target_leave(psc_req_t *req);
/* Refuse all accesses: each origin gets PSC_ERR_REGION in the FIN, and data
 * that it still sends is discarded. Returns PSC_OK if no access reaches the
 * memory any more, PSC_INPROGRESS if a lane still reads it; call again after
 * progress. */
psc_status_t psc_target_close(psc_target_t *target);

/* ---- the payload that is arriving on a lane ---- */

/* Receive a payload into a bounce buffer, if there is memory for one; `in` has
 * the message's id and its lengths. */
void psc_landing_bounce(psc_incoming_t *in, const void *header,
                        psc_dest_t *dest_p);
/* Discard the rest of the payload that is arriving on the lane, and free its
 * bounce buffer. */
void psc_landing_drop(psc_lane_t *lane);

/* ---- requests that have failed ---- */

/* End a request with an error as soon as its memory cannot be accessed any
 * more, neither by an operation of a lane nor by a peer that was given keys.
 * Until then the request is not done and keeps its memory. */
void psc_req_fail(psc_req_t *req, psc_status_t status);
/* Finish a request that psc_req_fail was called for. If a lane has an operation
 * in flight, or a peer may be writing into the memory, the request is not
 * finished yet; for a peer's writes it waits on the worker's list
 * `revoking`. */
void psc_access_settle(psc_req_t *req);
/* Try again to finish the failed requests in the worker's list
 * ends.revoking. */
void psc_access_progress(psc_worker_t *worker);
/* Revoke the keys that the peer was given for a lane that is being closed: all
 * keys if the lane is spare (its connection goes on), else only those by which
 * the peer writes. Returns PSC_INPROGRESS while the peer may be using one; the
 * lane's endpoint must not be freed until then. */
psc_status_t psc_access_lane_end(const psc_lane_t *lane);
/* The lane's endpoint has stopped: forget its registrations in all requests. */
void psc_access_lane_ended(psc_lane_t *lane);
/* Number of failed requests that a peer may still write to. */
unsigned psc_access_count(const psc_worker_t *worker);
