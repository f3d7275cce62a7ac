/* The table of the functions of psc_api_t, and those of them that concern
 * requests, progress and connections. */
#include "api_table.h"

#include "pscompy/transport/kit/clock.h"
#include "conn.h"
#include "finish.h"
#include "memory/memory.h"
#include "progress/progress.h"
#include "../coll/coll.h"
#include "../proto/am.h"
#include "../proto/lend.h"
#include "../proto/message.h"
#include "../proto/rma.h"
#include "request.h"
#include "worker.h"

/* ---- requests ---- */

/* A request that is done is freed without the lock. A MATCHED receive would
 * wait for a buffer forever, so its message is put back into the queue. */
static void api_request_free(psc_request_t *request)
{
    psc_worker_t *worker = psc_req_worker(psc_req_of(request));

    if (psc_request_state(request) == PSC_REQUEST_DONE) {
        if (!atomic_load_explicit(&worker->forked, memory_order_relaxed))
            psc_completion_free(&worker->requests.completions,
                                psc_req_of(request));
        return;
    }
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    if (request->state == PSC_REQUEST_MATCHED &&
        psc_req_of(request)->kind == PSC_REQ_RECV)
        psc_recv_cancel(psc_req_of(request));
    psc_req_release(psc_req_of(request));
    psc_worker_leave(worker);
}

static psc_status_t api_event_create(psc_worker_t *worker, uint32_t flags,
                                     void *owner, psc_request_t **request_p)
{
    psc_status_t status = psc_worker_enter(worker, 0);
    psc_req_t *req;

    if (status != PSC_OK)
        return status;
    req = psc_req_create(&worker->requests, PSC_REQ_EVENT);
    if (req) {
        req->head.flags = flags;
        req->head.owner = owner;
        *request_p = &req->head;
    }
    psc_worker_leave(worker);
    return req ? PSC_OK : PSC_ERR_NO_MEMORY;
}

static void api_event_complete(psc_request_t *request, psc_status_t result)
{
    psc_worker_t *worker = psc_req_worker(psc_req_of(request));

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    if (request->state != PSC_REQUEST_DONE)
        psc_req_finish(psc_req_of(request), result);
    psc_worker_leave(worker);
}

/* ---- progress and waiting ---- */

static unsigned api_progress(psc_worker_t *worker, uint32_t flags)
{
    unsigned n;

    if (psc_worker_enter(worker, flags) != PSC_OK)
        return 0;
    n = psc_worker_progress_locked(worker, PSC_PASS_ALL);
    psc_worker_leave(worker);
    return n;
}

/* Arm or wake the sleeping threads again after a spin (psc_settle). If another
 * thread holds the lock, that thread does so before it releases the lock. */
static void api_spin_settle(psc_worker_t *worker)
{
    const uint32_t reasons = PSC_WAKE_SPENT | PSC_WAKE_POLLED;

    if (!(atomic_load(&worker->wait.wanted) & reasons))
        return;
    if (psc_worker_enter(worker, PSC_FLAG_TRY) != PSC_OK) {
        psc_worker_mail(worker);
        return;
    }
    psc_settle(worker);
    psc_worker_leave(worker);
}

static bool api_spin(psc_worker_t *worker, psc_request_t *request,
                     unsigned polls)
{
    polls = psc_spin_limit(worker, polls);
    while (psc_request_state(request) == PSC_REQUEST_ACTIVE && polls-- > 0) {
        if (psc_worker_enter(worker, PSC_FLAG_TRY) != PSC_OK)
            break;
        psc_worker_pass(worker, PSC_PASS_DUE);
        psc_worker_leave(worker);
        psc_clock_pause();
    }
    api_spin_settle(worker);
    return psc_request_state(request) != PSC_REQUEST_ACTIVE;
}

static psc_request_t *api_completion_poll(psc_worker_t *worker)
{
    psc_req_t *req = NULL;

    if (!atomic_load_explicit(&worker->forked, memory_order_relaxed))
        req = psc_completion_poll(&worker->requests.completions);
    return req ? &req->head : NULL;
}

static bool api_pending(psc_worker_t *worker)
{
    return psc_worker_pending(worker);
}

/* ---- connections ---- */

static uint64_t api_conn_id(const psc_conn_t *conn)
{
    return conn->id;
}

static int api_conn_rank(const psc_conn_t *conn)
{
    return conn->rank;
}

static unsigned api_conn_messages(const psc_conn_t *conn)
{
    return atomic_load(&conn->messages);
}

static psc_worker_t *api_conn_worker(const psc_conn_t *conn)
{
    return conn->worker;
}

/* ---- the table ---- */

static const psc_api_t api_table = {
    .abi = PSC_API_ABI,
    .size = sizeof(psc_api_t),
    .send = psc_api_send,
    .recv = psc_api_recv,
    .recv_supply = psc_api_recv_supply,
    .probe = psc_api_probe,
    .iprobe = psc_api_iprobe,
    .cancel = psc_api_cancel,
    .recv_give_up = psc_api_recv_give_up,
    .recv_return = psc_api_recv_return,
    .request_free = api_request_free,
    .event_create = api_event_create,
    .event_complete = api_event_complete,
    .progress = api_progress,
    .spin = api_spin,
    .linger = psc_wait_linger,
    .arm = psc_worker_arm,
    .wait = psc_wait_requests,
    .completion_poll = api_completion_poll,
    .wake = psc_worker_wake,
    .pending = api_pending,
    .am_send = psc_api_am_send,
    .am_post = psc_am_post,
    .am_handler = psc_api_am_handler,
    .message_poll = psc_api_message_poll,
    .message_free = psc_api_message_free,
    .region_create = psc_memory_register,
    .region_destroy = psc_api_region_destroy,
    .region_pack = psc_memory_pack,
    .put = psc_api_put,
    .get = psc_api_get,
    .conn_state = psc_conn_state,
    .conn_call = psc_conn_call,
    .conn_id = api_conn_id,
    .conn_rank = api_conn_rank,
    .conn_messages = api_conn_messages,
    .conn_worker = api_conn_worker,
    .block_alloc = psc_pool_alloc,
    .block_free = psc_pool_give,
    .recv_view = psc_api_recv_view,
    .view_free = psc_lend_return,
    .descriptor = psc_worker_fd,
    .region_size = psc_region_size,
    .sleeper_create = psc_sleeper_create,
    .sleeper_release = psc_sleeper_release,
    .sleeper_descriptor = psc_sleeper_descriptor,
    .sleeper_arm = psc_sleeper_arm,
    .sleeper_progress = psc_sleeper_progress,
    .sleeper_wait = psc_sleeper_wait,
    .send_strided = psc_api_send_strided,
    .offer = psc_api_offer,
    .fetch = psc_api_fetch,
    .group_create = psc_group_create,
    .group_destroy = psc_group_destroy,
    .group_connect = psc_group_connect,
    .group_wanted = psc_group_wanted,
    .coll_start = psc_coll_start,
    .coll_call = psc_coll_call,
    .coll_init = psc_coll_init,
    .coll_free = psc_coll_free,
    .coll_differs = psc_coll_differs,
    .coll_explain = psc_coll_explain,
    .coll_combine = psc_coll_combine,
    .conn_open = psc_conn_open,
    .conn_error = psc_conn_error,
};

uintptr_t psc_api_address(void)
{
    return (uintptr_t)&api_table;
}
