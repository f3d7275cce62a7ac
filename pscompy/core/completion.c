#include "completion.h"

/* ---- holds on a request ---- */

static void completion_push(_Atomic(psc_req_t *) *chain, psc_req_t *req)
{
    req->place.other.next = atomic_load_explicit(chain, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(chain, &req->place.other.next, req))
        ;
}

psc_req_t *psc_completion_take_freed(psc_completions_t *queue)
{
    if (!atomic_load_explicit(&queue->freed, memory_order_relaxed))
        return NULL;
    return atomic_exchange(&queue->freed, NULL);
}

unsigned psc_completion_let_go(psc_completions_t *queue, psc_req_t *req)
{
    unsigned others = atomic_fetch_and(&req->holds, ~PSC_HELD_BY_CONSUMER) &
                      ~PSC_HELD_BY_CONSUMER;

    if (others & PSC_HELD_BY_QUEUE) {
        atomic_fetch_add(&queue->n_freed, 1);
        atomic_fetch_sub(&queue->n, 1);
    }
    return others;
}

void psc_completion_free(psc_completions_t *queue, psc_req_t *req)
{
    if (psc_completion_let_go(queue, req) == 0)
        completion_push(&queue->freed, req);
}

/* ---- the queue ---- */

unsigned psc_completion_add(psc_completions_t *queue, psc_req_t *req,
                            unsigned drop)
{
    unsigned char holds = atomic_load(&req->holds), after;

    atomic_fetch_add(&queue->n, 1);
    do {
        after = (unsigned char)(holds & ~drop);
        if (holds & PSC_HELD_BY_CONSUMER)
            after |= PSC_HELD_BY_QUEUE;
    } while (!atomic_compare_exchange_weak(&req->holds, &holds, after));
    if (holds & PSC_HELD_BY_QUEUE || !(after & PSC_HELD_BY_QUEUE)) {
        atomic_fetch_sub(&queue->n, 1);
        return after;
    }
    completion_push(&queue->added, req);
    return after;
}

static psc_req_t *completion_reverse(psc_req_t *req)
{
    psc_req_t *first = NULL, *next;

    for (; req; req = next) {
        next = req->place.other.next;
        req->place.other.next = first;
        first = req;
    }
    return first;
}

/* Release the completion queue's hold on a request. Returns false if the
 * consumer has freed the request before. */
static bool completion_take(psc_completions_t *queue, psc_req_t *req)
{
    unsigned others =
        atomic_fetch_and(&req->holds, ~PSC_HELD_BY_QUEUE) & ~PSC_HELD_BY_QUEUE;

    if (others & PSC_HELD_BY_CONSUMER) {
        atomic_fetch_sub(&queue->n, 1);
        return true;
    }
    atomic_fetch_sub(&queue->n_freed, 1);
    if (others == 0)
        completion_push(&queue->freed, req);
    return false;
}

psc_req_t *psc_completion_poll(psc_completions_t *queue)
{
    psc_req_t *req;

    /* Even if all queued requests have been freed, go on: the freed requests in
     * `taken` are removed only by this function, not by psc_completion_sift. */
    if (atomic_load(&queue->n) == 0 && atomic_load(&queue->n_freed) == 0)
        return NULL;
    do {
        if (!queue->taken)
            queue->taken =
                completion_reverse(atomic_exchange(&queue->added, NULL));
        req = queue->taken;
        if (!req)
            return NULL;
        queue->taken = req->place.other.next;
    } while (!completion_take(queue, req));
    return req;
}

/* Remove the freed requests from `added`. Needed for a consumer that never
 * polls, because otherwise only polling removes requests. */
void psc_completion_sift(psc_completions_t *queue)
{
    psc_req_t *req, *next;

    if (atomic_load(&queue->n_freed) == 0)
        return;
    req = completion_reverse(atomic_exchange(&queue->added, NULL));
    for (; req; req = next) {
        next = req->place.other.next;
        if (atomic_load(&req->holds) & PSC_HELD_BY_CONSUMER)
            completion_push(&queue->added, req);
        else
            completion_take(queue, req);
    }
}
