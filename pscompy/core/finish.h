/* How a request ends. With the lock held. A request that fails while its memory
 * can still be accessed ends by memory/memory.h. */
#pragma once

#include "types/connection.h"

/* End a request: set result.status and notify its consumer. */
void psc_req_finish(psc_req_t *req, psc_status_t status);
/* End with an error a request that no caller has yet. Returns the error. */
psc_status_t psc_req_abandon(psc_req_t *req, psc_status_t status);
/* Notify the consumer of a request that has ended, and release the core's hold
 * on the request. Needed if the request ended during a call with req->inside
 * set (types/request.h), and that call does not return the result. */
void psc_req_notify(psc_req_t *req);
/* Release the core's hold on a request that has ended during a call with
 * req->inside set (types/request.h), if the call returns the result itself. */
void psc_req_returned(psc_req_t *req);
/* A receive without buffer has matched a message: notify its consumer. */
void psc_req_matched(psc_req_t *req);
/* Release the consumer's hold on the request; the last hold that is released
 * frees it (completion.h). */
void psc_req_release(psc_req_t *req);
/* Release the registration and the peer's key that the request has for this
 * lane. */
void psc_req_forget_lane(psc_req_t *req, const psc_lane_t *lane);
