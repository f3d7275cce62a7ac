#include "completion.h"

#include "conn.h"
#include "worker.h"

/* ---- who holds a request ---- */

/* Without the lock: leave it for the thread that next needs a request. */
static void completion_push_freed(psc_completions_t *queue, psc_req_t *req)
{
    req->next = atomic_load_explicit(&queue->freed, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&queue->freed, &req->next, req))
        ;
}

void psc_req_reclaim_freed(psc_worker_t *worker)
{
    psc_completions_t *queue = &worker->completions;
    psc_req_t *req, *next;

    if (!atomic_load_explicit(&queue->freed, memory_order_relaxed))
        return;
    for (req = atomic_exchange(&queue->freed, NULL); req; req = next) {
        next = req->next;
        psc_req_recycle(req);
    }
}

/* The consumer lets go. Returns who else holds the request. */
static unsigned completion_let_go(psc_req_t *req)
{
    psc_completions_t *queue = &req->worker->completions;
    unsigned others = atomic_fetch_and(&req->holds, ~PSC_HELD_BY_CONSUMER) &
                      ~PSC_HELD_BY_CONSUMER;

    if (others & PSC_HELD_BY_QUEUE) {
        atomic_fetch_add(&queue->n_freed, 1);
        atomic_fetch_sub(&queue->n, 1);
    }
    return others;
}

void psc_req_free_done(psc_req_t *req)
{
    psc_worker_t *worker = req->worker;

    if (atomic_load_explicit(&worker->forked, memory_order_relaxed))
        return;
    if (completion_let_go(req) == 0)
        completion_push_freed(&worker->completions, req);
}

void psc_req_release(psc_req_t *req)
{
    req->head.flags &= ~PSC_FLAG_NOTIFY;
    req->head.owner = NULL;
    if (completion_let_go(req) == 0)
        psc_req_recycle(req);
}

/* ---- the queue ---- */

/* The queue holds the request from now on, unless it does already or the
 * consumer has let go; drop: a hold that ends with it. Returns the new holds.
 * After it the consumer may free the request at any time. */
static unsigned completion_add(psc_req_t *req, unsigned drop)
{
    psc_completions_t *queue = &req->worker->completions;
    unsigned holds = atomic_load(&req->holds), after;

    atomic_fetch_add(&queue->n, 1);
    do {
        after = holds & ~drop;
        if (holds & PSC_HELD_BY_CONSUMER)
            after |= PSC_HELD_BY_QUEUE;
    } while (!atomic_compare_exchange_weak(&req->holds, &holds, after));
    if (holds & PSC_HELD_BY_QUEUE || !(after & PSC_HELD_BY_QUEUE)) {
        atomic_fetch_sub(&queue->n, 1);
        return after;
    }
    req->next = atomic_load_explicit(&queue->added, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&queue->added, &req->next, req))
        ;
    return after;
}

static psc_req_t *completion_reverse(psc_req_t *req)
{
    psc_req_t *first = NULL, *next;

    for (; req; req = next) {
        next = req->next;
        req->next = first;
        first = req;
    }
    return first;
}

/* The queue lets go. False: the consumer has done so before. */
static bool completion_take(psc_completions_t *queue, psc_req_t *req)
{
    unsigned others = atomic_fetch_and(&req->holds, ~PSC_HELD_BY_QUEUE) &
                      ~PSC_HELD_BY_QUEUE;

    if (others & PSC_HELD_BY_CONSUMER) {
        atomic_fetch_sub(&queue->n, 1);
        return true;
    }
    atomic_fetch_sub(&queue->n_freed, 1);
    if (others == 0)
        completion_push_freed(queue, req);
    return false;
}

psc_req_t *psc_completion_poll(psc_worker_t *worker)
{
    psc_completions_t *queue = &worker->completions;
    psc_req_t *req;

    if (atomic_load(&queue->n) == 0)
        return NULL;
    do {
        if (!queue->taken)
            queue->taken =
                completion_reverse(atomic_exchange(&queue->added, NULL));
        req = queue->taken;
        if (!req)
            return NULL;
        queue->taken = req->next;
    } while (!completion_take(queue, req));
    return req;
}

/* A consumer that never polls leaves what it has freed in the queue. */
void psc_req_reclaim_queued(psc_worker_t *worker)
{
    psc_completions_t *queue = &worker->completions;
    psc_req_t *req, *next;

    if (atomic_load(&queue->n_freed) == 0)
        return;
    req = completion_reverse(atomic_exchange(&queue->added, NULL));
    for (; req; req = next) {
        next = req->next;
        if (!(atomic_load(&req->holds) & PSC_HELD_BY_CONSUMER)) {
            completion_take(queue, req);
            continue;
        }
        req->next = atomic_load_explicit(&queue->added, memory_order_relaxed);
        while (!atomic_compare_exchange_weak(&queue->added, &req->next, req))
            ;
    }
    psc_req_reclaim_freed(worker);
}

/* ---- the end of a request ---- */

void psc_req_forget_lane(psc_req_t *req, const psc_lane_t *lane)
{
    psc_mem_t **mem = &req->bulk.mem[lane->index];
    psc_rkey_t **key = &req->bulk.keys.key[lane->index];

    if (*mem)
        lane->slot->ops->mem_deregister(lane->ep->iface, *mem);
    if (*key)
        lane->slot->ops->rkey_release(lane->ep, *key);
    *mem = NULL;
    *key = NULL;
}

/* Give back what the lanes know of this request's memory. */
static void req_bulk_release(psc_req_t *req)
{
    for (uint32_t i = 0; req->conn && i < req->conn->n_lanes; i++)
        psc_req_forget_lane(req, req->conn->lanes[i]);
}

static void req_end(psc_req_t *req, psc_status_t status)
{
    req_bulk_release(req);
    psc_list_remove(&req->conn_link);
    psc_req_stage_set(req, PSC_STAGE_DONE);
    if (req->head.result.status == PSC_OK || status != PSC_OK)
        req->head.result.status = status;
}

static void req_state_set(psc_req_t *req, psc_request_state_t state)
{
    __atomic_store_n(&req->head.state, state, __ATOMIC_RELEASE);
}

/* The core lets go; from the state's change on the consumer may free it. */
static void req_drop(psc_req_t *req, bool notify)
{
    psc_worker_t *worker = req->worker;
    unsigned holds;

    req_state_set(req, PSC_REQUEST_DONE);
    if (notify)
        holds = completion_add(req, PSC_HELD_BY_CORE);
    else
        holds = atomic_fetch_and(&req->holds, ~PSC_HELD_BY_CORE) &
                ~PSC_HELD_BY_CORE;
    if (holds == 0)
        psc_req_recycle(req);
    else
        psc_wake(worker, PSC_WAKE_NEWS);
}

void psc_req_finish(psc_req_t *req, psc_status_t status)
{
    req_end(req, status);
    if (req->on_done) {
        req->on_done(req);
        if (req->on_done)
            psc_req_release(req);
    }
    if (req->unshared)
        req_state_set(req, PSC_REQUEST_DONE);
    else
        req_drop(req, req->head.flags & PSC_FLAG_NOTIFY);
}

void psc_req_finish_unnotified(psc_req_t *req, psc_status_t status)
{
    req_end(req, status);
    req_state_set(req, PSC_REQUEST_DONE);
    atomic_fetch_and(&req->holds, ~PSC_HELD_BY_CORE);
}

void psc_req_matched(psc_req_t *req)
{
    req->unshared = false; /* it is in the queue, or is about to be returned */
    req_state_set(req, PSC_REQUEST_MATCHED);
    if (req->head.flags & PSC_FLAG_NOTIFY)
        completion_add(req, 0);
    psc_wake(req->worker, PSC_WAKE_NEWS);
}
