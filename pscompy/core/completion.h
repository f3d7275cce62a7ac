/* How a request ends, and how its consumer learns of it.
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

#include "control.h"
#include "request.h"

#define PSC_HELD_BY_CORE 1u
#define PSC_HELD_BY_CONSUMER 2u
#define PSC_HELD_BY_QUEUE 4u

typedef struct psc_completions {
    _Atomic(psc_req_t *) added; /* the last one first */
    psc_req_t *taken;           /* the consumer's, the first one first */
    _Atomic(psc_req_t *) freed; /* for the pool, once the lock is held */
    atomic_uint n;              /* queued requests that a consumer holds */
    atomic_uint n_freed;        /* queued requests that no consumer holds */
} psc_completions_t;

/* ---- with the lock held ---- */

/* Ends a request: sets result.status and notifies its consumer. */
void psc_req_finish(psc_req_t *req, psc_status_t status);
/* The same in a call of the consumer's that returns the end: nobody is
 * notified. Its state goes from MATCHED to DONE at once, so that a thread which
 * has been woken for MATCHED does not find it ACTIVE. */
void psc_req_finish_unnotified(psc_req_t *req, psc_status_t status);
/* A receive without buffer has its message: notifies its consumer. */
void psc_req_matched(psc_req_t *req);
/* The consumer lets go. */
void psc_req_release(psc_req_t *req);
/* Give back what this lane of its connection knows of its memory. */
void psc_req_forget_lane(psc_req_t *req, const psc_lane_t *lane);
/* Put the requests that were freed without the lock back into the pool. */
void psc_req_reclaim_freed(psc_worker_t *worker);
/* The same for those that were freed while they stood in the queue. */
void psc_req_reclaim_queued(psc_worker_t *worker);

/* ---- without the lock ---- */

/* The consumer lets go of a request that is DONE; any thread. */
void psc_req_free_done(psc_req_t *req);
/* The next request of the queue, or NULL; one thread at a time. */
psc_req_t *psc_completion_poll(psc_worker_t *worker);

#endif
