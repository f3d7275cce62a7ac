/* One operation from its creation to its completion. It is on the stack of a
 * blocking call or inside a Request. */
#include "op.h"

#include "errors.h"
#include "memory.h"
#include "recv_buffer.h"

/* ---- the worker's list ---- */

void psb_op_link(psb_op_t *op)
{
    if (op->listed)
        return;
    op->listed = true;
    psc_list_push(&op->worker->ops, &op->link);
}

void psb_op_unlink(psb_op_t *op)
{
    if (op->listed)
        psc_list_remove(&op->link);
    op->listed = false;
}

/* ---- start ---- */

int psb_op_init(psb_op_t *op, const psb_call_t *call, psb_view_room_t *room)
{
    psb_needs_t needs = {
        .writable = call->kind == PSB_RECV_INTO || call->kind == PSB_GET ||
                    call->kind == PSB_FETCH,
        .contiguous = call->kind != PSB_SEND && call->kind != PSB_RECV_INTO};

    op->worker = call->worker;
    op->origin = call->origin;
    op->core = NULL;
    op->memory = NULL;
    op->kind = (uint8_t)call->kind;
    op->listed = op->in_room = op->matched = false;
    op->done = op->in_request = op->finished = op->failed = false;
    op->in_flight = op->self_reference = op->offered = false;
    op->unnotified = op->cancelled = op->persistent = false;
    op->seen = op->giving_back = false;
    op->awaits = 0;
    op->context = (uint16_t)call->context;
    op->tag = call->tag;
    op->waiters = 0;
    op->polls = 0;
    /* This also sets `target`, which is in the same union, to NULL. */
    op->result = (psc_result_t){.status = PSC_OK, .rank = -1};
    psb_buffers_init(&op->buffers);
    if (call->buf && psb_buffers_get(&op->buffers, call->buf, needs, room) < 0)
        return -1;
    if (PSB_UNLIKELY(call->lend) &&
        psb_buffers_lend(&op->buffers, call->worker->state) < 0) {
        psb_buffers_release(&op->buffers);
        return -1;
    }
    op->memory = Py_XNewRef(call->keep);
    if (call->kind == PSB_RECV_NEW || call->kind == PSB_RECV_ROOM ||
        call->kind == PSB_RECV_STATUS) {
        op->memory = psb_room_take(op->worker);
        op->in_room = op->memory != NULL;
    }
    return 0;
}

/* ---- in flight ---- */

void psb_op_set_memory(psb_op_t *op, PyObject *memory)
{
    PyObject *old = op->memory;
    bool in_room = op->in_room;

    op->memory = memory;
    op->in_room = false;
    if (in_room)
        psb_room_give(op->worker, old);
    else
        Py_XDECREF(old);
}

void psb_op_free_core(psb_op_t *op)
{
    if (!op->core || op->waiters)
        return;
    op->worker->api->request_free(op->core);
    op->core = NULL;
}

static void op_end(psb_op_t *op, psc_result_t result)
{
    psb_op_unlink(op);
    op->result = result;
    op->done = true;
    op->matched = false;
    psb_op_free_core(op);
}

static void op_fail(psb_op_t *op, psc_status_t status)
{
    op_end(op, (psc_result_t){.status = status, .rank = -1});
}

/* Makes the memory of a receive without buffer, when the length of its message
 * is known. */
static int op_make_fresh(psb_op_t *op, psc_iov_t *piece)
{
    uint64_t nbytes = op->core->result.nbytes;
    PyObject *fresh = NULL;

    if (op->kind == PSB_RECV_VIEW || op->kind == PSB_RECV_MEMORY) {
        fresh = psb_memory_receive(op->worker, (size_t)nbytes,
                                   op->kind == PSB_RECV_VIEW);
        if (fresh) {
            Py_ssize_t length;

            piece->base = psb_memory_base(fresh, &length);
            piece->len = (size_t)length;
        }
    } else if (nbytes <= PY_SSIZE_T_MAX) {
        fresh = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)nbytes);
        if (fresh)
            *piece = (psc_iov_t){PyByteArray_AS_STRING(fresh), (size_t)nbytes};
    }
    if (!fresh) {
        PyErr_Clear();
        return -1;
    }
    psb_op_set_memory(op, fresh);
    return 0;
}

static void op_supply(psb_op_t *op)
{
    const psc_iov_t *iov = psb_buffers_iov(&op->buffers);
    const psc_api_t *api = op->worker->api;
    size_t n_iov = psb_buffers_n(&op->buffers);
    psc_status_t status;
    psc_iov_t piece;

    if ((op->kind == PSB_RECV_VIEW || op->kind == PSB_RECV_MEMORY) &&
        (op->memory = psb_memory_view(op->worker, op->core)))
        return;
    if (op->kind != PSB_RECV_INTO) {
        if (op_make_fresh(op, &piece) < 0) {
            psc_result_t refused = {.status = PSC_ERR_NO_MEMORY,
                                    .rank = -1,
                                    .nbytes = op->core->result.nbytes};

            api->cancel(op->core);
            op_end(op, refused);
            return;
        }
        iov = &piece;
        n_iov = 1;
    }
    status = api->recv_supply(op->core, iov, n_iov);
    if (PSB_UNLIKELY(psc_request_state(op->core) == PSC_REQUEST_MATCHED)) {
        api->cancel(op->core);
        op_fail(op, status);
    }
}

bool psb_op_advance(psb_op_t *op)
{
    while (!op->done) {
        int state = psc_request_state(op->core);

        if (state == PSC_REQUEST_ACTIVE)
            return false;
        if (state == PSC_REQUEST_DONE) {
            op_end(op, op->core->result);
        } else if (op->kind == PSB_MATCH) {
            op->matched = op->done = true;
        } else {
            op_supply(op);
        }
    }
    return true;
}

void psb_op_abandon(psb_op_t *op, psc_status_t status)
{
    op->core = NULL;
    op_fail(op, status);
}

bool psb_op_withdraw(psb_op_t *op)
{
    psb_raised_t raised = psb_raised_take();
    bool gone = true;

    if (op->done)
        gone = true;
    else if (op->worker->api->cancel(op->core) == PSC_OK)
        op_fail(op, PSC_ERR_CANCELLED);
    else
        gone = psb_op_advance(op);
    psb_raised_restore(raised);
    return gone;
}

bool psb_op_receives(const psb_op_t *op)
{
    return op->kind == PSB_RECV_INTO || op->kind == PSB_RECV_NEW ||
           op->kind == PSB_RECV_STATUS || op->kind == PSB_RECV_VIEW ||
           op->kind == PSB_RECV_MEMORY;
}

bool psb_op_give_up(psb_op_t *op)
{
    const psc_api_t *api = op->worker->api;

    if (op->done)
        return true;
    if ((psb_op_receives(op) ? api->recv_give_up(op->core)
                             : api->cancel(op->core)) == PSC_OK)
        op_fail(op, PSC_ERR_CANCELLED);
    return psb_op_advance(op);
}

/* ---- end ---- */

void psb_op_drop_memory(psb_op_t *op)
{
    psb_op_set_memory(op, NULL);
}

void psb_op_clear(psb_op_t *op)
{
    psb_op_unlink(op);
    /* If a probe's message was not received, it goes back to the queue of
     * arrived messages. */
    if (op->core) {
        op->worker->api->cancel(op->core);
        psb_op_free_core(op);
    }
    psb_op_drop_memory(op);
    psb_buffers_release(&op->buffers);
}
