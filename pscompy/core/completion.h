/* The completion queue, and the holds on a request.
 *
 * Up to three parties hold a request: the core until it has ended, its consumer
 * until request_free, and the completion queue while it is queued. The last to
 * release its hold puts the request back into the pool.
 *
 * The completion queue has the requests with PSC_FLAG_NOTIFY that are done or
 * matched. The core adds to it with the worker's lock held. One thread at a
 * time takes from it without the lock. request_free of a request that is done
 * needs no lock either, so that a consumer does not contend with the thread
 * that makes passes. */
#pragma once

#include "types/request.h"

#define PSC_HELD_BY_CORE 1u
#define PSC_HELD_BY_CONSUMER 2u
#define PSC_HELD_BY_QUEUE 4u

typedef struct psc_completions {
    _Atomic(psc_req_t *) added; /* completed requests, the newest first */
    /* requests that completion_poll has moved out of `added`, oldest first */
    psc_req_t *taken;
    /* requests that were freed without the lock, for the pool to take
     * (psc_completion_take_freed) */
    _Atomic(psc_req_t *) freed;
    /* number of queued requests that their consumers still hold */
    atomic_uint n;
    /* number of queued requests that their consumers have freed */
    atomic_uint n_freed;
} psc_completions_t;

/* ---- with the lock held ---- */

/* Add the request to the queue, unless it is queued already or the consumer has
 * released it; `drop` is a hold (PSC_HELD_BY_) that is released in the same
 * step. Returns the remaining holds. Afterwards the consumer may free the
 * request at any time. */
unsigned psc_completion_add(psc_completions_t *queue, psc_req_t *req,
                            unsigned drop);
/* Release the consumer's hold on the request. Returns the remaining holds
 * (PSC_HELD_BY_ bits). */
unsigned psc_completion_let_go(psc_completions_t *queue, psc_req_t *req);
/* Take the requests that were freed without the lock, as a chain. Returns NULL
 * if there are none. */
psc_req_t *psc_completion_take_freed(psc_completions_t *queue);
/* Move the requests that were freed while they were in the queue to the chain
 * `freed`. */
void psc_completion_sift(psc_completions_t *queue);

/* ---- without the lock ---- */

/* Release the consumer's hold on a request that is DONE; any thread. */
void psc_completion_free(psc_completions_t *queue, psc_req_t *req);
/* Returns the next request of the queue, or NULL; one thread at a time may call
 * it. */
psc_req_t *psc_completion_poll(psc_completions_t *queue);
