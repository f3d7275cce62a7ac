#include "finish.h"

#include "progress/progress.h"

/* ---- the consumer's hold ---- */

void psc_req_release(psc_req_t *req)
{
    req->head.flags &= ~PSC_FLAG_NOTIFY;
    req->head.owner = NULL;
    if (psc_completion_let_go(&psc_req_worker(req)->requests.completions,
                              req) == 0)
        psc_req_recycle(&psc_req_worker(req)->requests, req);
}

/* ---- the core's hold ---- */

static void req_forget(const psc_lane_t *lane, psc_mem_t **mem,
                       psc_rkey_t **key)
{
    if (*mem)
        lane->slot->ops->mem_deregister(lane->ep->iface, *mem);
    if (*key)
        lane->slot->ops->rkey_release(lane->ep, *key);
    *mem = NULL;
    *key = NULL;
}

void psc_req_forget_lane(psc_req_t *req, const psc_lane_t *lane)
{
    psc_bulk_t *bulk = req->bulk;
    uint32_t i = lane->index;

    if (!psc_req_extended(req))
        return;
    req_forget(lane, &bulk->mem[i], &bulk->keys.key[i]);
    for (uint32_t n = 0; bulk->parts && n < req->n_iov; n++)
        req_forget(lane, &bulk->parts[n].mem[i], &bulk->parts[n].keys.key[i]);
}

/* Release the lanes' registrations and keys of this request. */
static void req_bulk_release(psc_req_t *req)
{
    if (!psc_req_extended(req) || !psc_req_conn(req))
        return;
    for (uint32_t i = 0; i < psc_req_conn(req)->n_lanes; i++)
        psc_req_forget_lane(req, psc_req_conn(req)->lanes[i]);
}

static void req_end(psc_req_t *req, psc_status_t status)
{
    req_bulk_release(req);
    psc_list_remove(&req->link);
    psc_req_stage_set(req, PSC_STAGE_DONE);
    if (req->head.result.status == PSC_OK || status != PSC_OK)
        req->head.result.status = status;
}

static inline void req_state_set(psc_req_t *req, psc_request_state_t state)
{
    __atomic_store_n(&req->head.state, state, __ATOMIC_RELEASE);
    if (req->follower)
        psc_follower_wake(psc_req_worker(req), req->follower);
}

/* Release the core's hold on the request. The consumer may free the request as
 * soon as its state has changed. */
static void req_drop(psc_req_t *req, bool notify)
{
    psc_worker_t *worker = psc_req_worker(req);
    psc_requests_t *requests = &worker->requests;
    unsigned holds;

    req_state_set(req, PSC_REQUEST_DONE);
    if (notify)
        holds =
            psc_completion_add(&requests->completions, req, PSC_HELD_BY_CORE);
    else
        holds = atomic_fetch_and(&req->holds, ~PSC_HELD_BY_CORE) &
                ~PSC_HELD_BY_CORE;
    if (holds == 0)
        psc_req_recycle(requests, req);
    else
        psc_wake(worker, PSC_WAKE_EVENT);
}

void psc_req_notify(psc_req_t *req)
{
    req_drop(req, req->head.flags & PSC_FLAG_NOTIFY);
}

void psc_req_finish(psc_req_t *req, psc_status_t status)
{
    req_end(req, status);
    if (req->bulk->on_done) {
        req->bulk->on_done(req);
        if (req->bulk->on_done)
            psc_req_release(req);
    }
    if (req->inside)
        req_state_set(req, PSC_REQUEST_DONE);
    else
        psc_req_notify(req);
}

psc_status_t psc_req_abandon(psc_req_t *req, psc_status_t status)
{
    psc_req_release(req);
    psc_req_finish(req, status);
    return status;
}

void psc_req_returned(psc_req_t *req)
{
    req->inside = false;
    atomic_fetch_and(&req->holds, ~PSC_HELD_BY_CORE);
}

void psc_req_matched(psc_req_t *req)
{
    /* The call that has set `inside` cannot return the result, because the
     * request is matched but not finished. So the consumer must be notified
     * when the request finishes. */
    req->inside = false;
    req_state_set(req, PSC_REQUEST_MATCHED);
    if (req->head.flags & PSC_FLAG_NOTIFY)
        psc_completion_add(&psc_req_worker(req)->requests.completions, req, 0);
    psc_wake(psc_req_worker(req), PSC_WAKE_EVENT);
}
