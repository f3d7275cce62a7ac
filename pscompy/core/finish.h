/* How a request ends. With the lock held; a request that fails while its memory
 * is still reached ends by memory/access.h. */
#ifndef PSCOMPY_CORE_FINISH_H
#define PSCOMPY_CORE_FINISH_H

#include "types/conn.h"

/* Ends a request: sets result.status and notifies its consumer. */
void psc_req_finish(psc_req_t *req, psc_status_t status);
/* After a call during which req->inside was set, and in which it ended: the
 * core lets go of it. */
void psc_req_returned(psc_req_t *req);
/* A receive without buffer has its message: notifies its consumer. */
void psc_req_matched(psc_req_t *req);
/* The consumer lets go. */
void psc_req_release(psc_req_t *req);
/* Give back what this lane of its connection knows of its memory. */
void psc_req_forget_lane(psc_req_t *req, const psc_lane_t *lane);

#endif
