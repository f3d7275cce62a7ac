/* psc_api_t: argument checks and the lock around the protocols' operations. */
#include "api.h"

#include <time.h>

#include "completion.h"
#include "conn.h"
#include "pscompy/transport/kit/clock.h"
#include "memory/pool.h"
#include "proto/am.h"
#include "proto/giveback.h"
#include "proto/lend.h"
#include "proto/message.h"
#include "proto/rma.h"

static psc_req_t *req_of(psc_request_t *request)
{
    return psc_container_of(request, psc_req_t, head);
}

static bool api_tag_valid(int32_t tag, bool wildcard)
{
    return tag >= 0 || (wildcard && tag == PSC_ANY_TAG);
}

/* ---- messages ---- */

static psc_status_t api_send(psc_conn_t *conn, const psc_send_args_t *args,
                             psc_request_t **request_p)
{
    psc_status_t status;

    if (!api_tag_valid(args->tag, false))
        return PSC_ERR_INVALID;
    status = psc_worker_enter(conn->worker, args->flags);
    if (status != PSC_OK)
        return status;
    status = psc_message_send_now(conn, args, 0);
    if (status != PSC_OK) {
        /* who only sends has not looked for the credit that came back */
        if (psc_message_starved(conn, args))
            psc_worker_progress_locked(conn->worker, psc_conn_ifaces(conn));
        status = psc_message_send(conn, args, 0, request_p);
    }
    psc_worker_leave(conn->worker);
    return status;
}

/* Polls under the lock that the call has taken: nobody else knows the request
 * yet, and a message that arrives at once leaves none behind. */
static psc_status_t api_recv_poll(psc_worker_t *worker, unsigned polls,
                                  psc_result_t *result_p,
                                  psc_request_t **request_p)
{
    psc_request_t *request = *request_p;
    psc_req_t *req = req_of(request);
    bool unshared;

    req->unshared = request->state == PSC_REQUEST_ACTIVE;
    while (request->state == PSC_REQUEST_ACTIVE && polls-- > 0 &&
           !psc_lock_wanted(&worker->lock)) {
        if (psc_worker_pass(worker, PSC_PASS_DUE) == 0)
            psc_clock_pause();
    }
    psc_settle(worker);
    unshared = req->unshared;
    req->unshared = false;
    if (request->state != PSC_REQUEST_DONE)
        return PSC_INPROGRESS;
    *result_p = request->result;
    *request_p = NULL;
    if (unshared)
        psc_req_recycle(req);
    else
        psc_req_release(req);
    return result_p->status;
}

static psc_status_t api_recv(psc_worker_t *worker, const psc_recv_args_t *args,
                             psc_result_t *result_p, psc_request_t **request_p)
{
    psc_status_t status;

    if (!api_tag_valid(args->tag, true))
        return PSC_ERR_INVALID;
    status = psc_worker_enter(worker, args->flags);
    if (status != PSC_OK)
        return status;
    status = psc_message_recv(worker, args, result_p, request_p);
    if (status == PSC_INPROGRESS && args->polls)
        status = api_recv_poll(worker, args->polls, result_p, request_p);
    psc_worker_leave(worker);
    return status;
}

static psc_status_t api_recv_supply(psc_request_t *request,
                                    const psc_iov_t *iov, size_t n_iov)
{
    psc_worker_t *worker = req_of(request)->worker;
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_message_supply(req_of(request), iov, n_iov);
    psc_worker_leave(worker);
    return status;
}

static psc_status_t api_probe(psc_worker_t *worker, const psc_recv_args_t *args,
                              psc_result_t *result_p,
                              psc_request_t **request_p)
{
    psc_status_t status;

    if (!api_tag_valid(args->tag, true))
        return PSC_ERR_INVALID;
    status = psc_worker_enter(worker, args->flags);
    if (status != PSC_OK)
        return status;
    status = psc_message_probe(worker, args, result_p, request_p);
    psc_worker_leave(worker);
    return status;
}

static psc_status_t api_iprobe(psc_worker_t *worker,
                               const psc_recv_args_t *args,
                               psc_result_t *result_p)
{
    psc_status_t status;

    if (!api_tag_valid(args->tag, true))
        return PSC_ERR_INVALID;
    status = psc_worker_enter(worker, args->flags);
    if (status != PSC_OK)
        return status;
    psc_worker_progress_locked(worker, PSC_PASS_ALL);
    status = psc_message_iprobe(worker, args, result_p);
    psc_worker_leave(worker);
    return status;
}

/* ---- requests ---- */

static psc_status_t api_cancel(psc_request_t *request)
{
    psc_worker_t *worker = req_of(request)->worker;
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_message_cancel(req_of(request));
    psc_worker_leave(worker);
    return status;
}

static psc_status_t api_recv_give_up(psc_request_t *request)
{
    psc_worker_t *worker = req_of(request)->worker;
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_giveback_request(req_of(request));
    psc_worker_leave(worker);
    return status;
}

static psc_status_t api_recv_return(psc_worker_t *worker, uint32_t context,
                                    const psc_result_t *result,
                                    const psc_iov_t *iov, size_t n_iov)
{
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_giveback_message(worker, context, result, iov, n_iov);
    psc_worker_leave(worker);
    return status;
}

/* A request that is done needs no lock. A receive that waits for a buffer would
 * wait for ever: its message goes back to the queue. */
static void api_request_free(psc_request_t *request)
{
    psc_worker_t *worker = req_of(request)->worker;

    if (psc_request_state(request) == PSC_REQUEST_DONE) {
        psc_req_free_done(req_of(request));
        return;
    }
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    if (request->state == PSC_REQUEST_MATCHED)
        psc_message_cancel(req_of(request));
    psc_req_release(req_of(request));
    psc_worker_leave(worker);
}

static psc_status_t api_event_create(psc_worker_t *worker, uint32_t flags,
                                     void *owner, psc_request_t **request_p)
{
    psc_status_t status = psc_worker_enter(worker, 0);
    psc_req_t *req;

    if (status != PSC_OK)
        return status;
    req = psc_req_create(worker, PSC_REQ_EVENT);
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
    psc_worker_t *worker = req_of(request)->worker;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    if (request->state != PSC_REQUEST_DONE)
        psc_req_finish(req_of(request), result);
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

/* Another thread that has the lock settles for us. */
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
        req = psc_completion_poll(worker);
    return req ? &req->head : NULL;
}

static bool api_pending(psc_worker_t *worker)
{
    return atomic_load_explicit(&worker->completions.n, memory_order_relaxed) ||
           atomic_load_explicit(&worker->n_messages, memory_order_relaxed);
}

/* ---- active messages ---- */

/* The header travels as the first piece of the payload. */
#define API_AM_PIECES 16

static psc_status_t api_am_send(psc_conn_t *conn, uint32_t id,
                                const void *header, size_t header_len,
                                const psc_send_args_t *args,
                                psc_request_t **request_p)
{
    psc_iov_t iov[API_AM_PIECES] = {{(void *)header, header_len}};
    psc_send_args_t whole = *args;
    psc_status_t status;

    if (id > PSC_TAG_MAX || header_len > PSC_AM_USER_HEADER_MAX ||
        args->n_iov >= API_AM_PIECES)
        return PSC_ERR_INVALID;
    for (size_t i = 0; i < args->n_iov; i++)
        iov[i + 1] = args->iov[i];
    whole.context = PSC_CONTEXT_AM;
    whole.tag = (int32_t)id;
    whole.iov = iov;
    whole.n_iov = args->n_iov + 1;
    status = psc_worker_enter(conn->worker, args->flags);
    if (status != PSC_OK)
        return status;
    status = psc_message_send(conn, &whole, (uint16_t)header_len, request_p);
    if (status >= 0)
        psc_count(conn, PSC_COUNTER_am_sent, 1);
    psc_worker_leave(conn->worker);
    return status;
}

static psc_status_t api_am_handler(psc_worker_t *worker, uint32_t id,
                                   psc_am_handler_t handler, void *arg)
{
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_am_set_handler(worker, id, handler, arg);
    psc_worker_leave(worker);
    return status;
}

static psc_message_t *api_message_poll(psc_worker_t *worker)
{
    psc_message_t *message;

    if (atomic_load(&worker->n_messages) == 0 ||
        psc_worker_enter(worker, 0) != PSC_OK)
        return NULL;
    message = psc_am_poll(worker);
    psc_worker_leave(worker);
    return message;
}

static void api_message_free(psc_worker_t *worker, psc_message_t *message)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    psc_am_message_free(message);
    psc_worker_leave(worker);
}

/* ---- remote memory: for the table and for control.h ---- */

int psc_memory_register(psc_worker_t *worker, void *base, size_t len,
                        psc_region_t **region_p)
{
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_region_create(worker, base, len, region_p);
    psc_worker_leave(worker);
    return status;
}

int psc_memory_deregister(psc_region_t *region)
{
    psc_worker_t *worker = psc_region_worker(region);
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_region_close(region);
    if (status == PSC_INPROGRESS)
        psc_worker_progress_locked(worker, PSC_PASS_ALL);
    psc_worker_leave(worker);
    return status;
}

#define API_CLOSE_PAUSE_NS 100000

static void api_region_destroy(psc_region_t *region)
{
    static const struct timespec pause = {.tv_nsec = API_CLOSE_PAUSE_NS};

    while (psc_memory_deregister(region) == PSC_INPROGRESS)
        nanosleep(&pause, NULL);
}

int psc_memory_pack(psc_region_t *region, uint8_t *packed, size_t *len_p)
{
    psc_worker_t *worker = psc_region_worker(region);
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_region_pack(region, packed, len_p);
    psc_worker_leave(worker);
    return status;
}

int psc_memory_pin(psc_worker_t *worker, void *base, size_t len,
                   psc_block_t **block_p)
{
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_pool_pin(worker->pool, base, len, block_p);
    psc_worker_leave(worker);
    return status;
}

void psc_memory_unpin(psc_worker_t *worker, psc_block_t *block)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    psc_pool_unpin(worker->pool, block);
    psc_worker_leave(worker);
}

static psc_status_t api_rma(psc_conn_t *conn, const psc_send_args_t *args,
                            const psc_rma_args_t *rma,
                            psc_request_t **request_p)
{
    psc_status_t status = psc_worker_enter(conn->worker, args->flags);

    if (status != PSC_OK)
        return status;
    status = psc_rma_start(conn, args, rma, request_p);
    psc_worker_leave(conn->worker);
    return status;
}

static psc_status_t api_put(psc_conn_t *conn, const psc_send_args_t *args,
                            const uint8_t *packed, size_t packed_len,
                            uint64_t offset, psc_request_t **request_p)
{
    return api_rma(conn, args,
                   &(psc_rma_args_t){packed, packed_len, offset, true},
                   request_p);
}

static psc_status_t api_get(psc_conn_t *conn, const psc_send_args_t *args,
                            const uint8_t *packed, size_t packed_len,
                            uint64_t offset, psc_request_t **request_p)
{
    return api_rma(conn, args,
                   &(psc_rma_args_t){packed, packed_len, offset, false},
                   request_p);
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

/* ---- lending ---- */

static psc_status_t api_recv_view(psc_request_t *request, psc_view_t **view_p)
{
    psc_worker_t *worker = req_of(request)->worker;
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_lend_view(req_of(request), view_p);
    psc_worker_leave(worker);
    return status;
}

static const psc_api_t api_table = {
    .abi = PSC_API_ABI,
    .size = sizeof(psc_api_t),
    .send = api_send,
    .recv = api_recv,
    .recv_supply = api_recv_supply,
    .probe = api_probe,
    .iprobe = api_iprobe,
    .cancel = api_cancel,
    .recv_give_up = api_recv_give_up,
    .recv_return = api_recv_return,
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
    .am_send = api_am_send,
    .am_post = psc_am_post,
    .am_handler = api_am_handler,
    .message_poll = api_message_poll,
    .message_free = api_message_free,
    .region_create = psc_memory_register,
    .region_destroy = api_region_destroy,
    .region_pack = psc_memory_pack,
    .put = api_put,
    .get = api_get,
    .conn_state = psc_conn_state,
    .conn_id = api_conn_id,
    .conn_rank = api_conn_rank,
    .conn_messages = api_conn_messages,
    .conn_worker = api_conn_worker,
    .block_alloc = psc_pool_alloc,
    .block_free = psc_pool_give,
    .recv_view = api_recv_view,
    .view_free = psc_lend_return,
    .descriptor = psc_worker_fd,
    .region_size = psc_region_size,
    .sleeper_create = psc_sleeper_create,
    .sleeper_release = psc_sleeper_release,
    .sleeper_descriptor = psc_sleeper_descriptor,
    .sleeper_arm = psc_sleeper_arm,
    .sleeper_progress = psc_sleeper_progress,
};

uintptr_t psc_api_address(void)
{
    return (uintptr_t)&api_table;
}

uint32_t psc_api_abi(void)
{
    return PSC_API_ABI;
}

uint32_t psc_transport_abi(void)
{
    return PSC_TRANSPORT_ABI;
}
