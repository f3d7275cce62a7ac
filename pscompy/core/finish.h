/* How a request ends. With the lock held. A request that fails while its memory
 * can still be accessed ends by memory/access.h. */
#ifndef PSCOMPY_CORE_FINISH_H
#define PSCOMPY_CORE_FINISH_H

#include "types/conn.h"

/* End a request: set result.status and notify its consumer. */
void psc_req_finish(psc_req_t *req, psc_status_t status);
/* Notify the consumer of a request that has ended during a call with
 * req->inside set, and release the core's hold on it. */
void psc_req_notify(psc_req_t *req);
/* Release the core's hold on a request that has ended during a call with
 * req->inside set. */
void psc_req_returned(psc_req_t *req);
/* A receive without buffer has matched a message: notify its consumer. */
void psc_req_matched(psc_req_t *req);
/* Release the consumer's hold. */
void psc_req_release(psc_req_t *req);
/* Release this lane's registration and key of the request. */
void psc_req_forget_lane(psc_req_t *req, const psc_lane_t *lane);

#endif
