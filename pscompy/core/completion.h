/* The completion queue, and who holds a request.
 *
 * A request is held by up to three: the core until it has ended, its consumer
 * until request_free, and the completion queue while it stands there. Whoever
 * lets go last puts it back into the pool.
 *
 * The completion queue has the requests with PSC_FLAG_NOTIFY that are done or
 * matched. The core adds to it with the worker's lock held; one thread at a
 * time takes from it without the lock, and request_free of a request that is
 * done needs no lock either: only the pass that delivers a message does. */
#ifndef PSCOMPY_CORE_COMPLETION_H
#define PSCOMPY_CORE_COMPLETION_H

#include "types/worker.h"

#define PSC_HELD_BY_CORE 1u
#define PSC_HELD_BY_CONSUMER 2u
#define PSC_HELD_BY_QUEUE 4u

/* ---- with the lock held ---- */

/* The queue holds the request from now on, unless it does already or the
 * consumer has let go; drop: a hold that ends with it. Returns who holds the
 * request now. After it the consumer may free the request at any time. */
unsigned psc_completion_add(psc_req_t *req, unsigned drop);
/* The consumer lets go. Returns who else holds the request. */
unsigned psc_completion_let_go(psc_req_t *req);
/* Requests that were freed without the lock, as a chain; NULL: there is none.
 */
psc_req_t *psc_completion_take_freed(psc_worker_t *worker);
/* Makes a chain of those that were freed while they stood in the queue. */
void psc_completion_sift(psc_worker_t *worker);

/* ---- without the lock ---- */

/* The consumer lets go of a request that is DONE; any thread. */
void psc_req_free_done(psc_req_t *req);
/* The next request of the queue, or NULL; one thread at a time. */
psc_req_t *psc_completion_poll(psc_worker_t *worker);

#endif
