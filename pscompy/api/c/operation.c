/* One operation from its creation to its completion. It is on the stack of a
 * blocking call or inside a Request. */
#include "operation.h"
#include "memory.h"

/* ---- the worker's list ---- */

void psb_op_link(psb_op_t *op)
{
    if (op->listed)
        return;
    op->listed = true;
    psc_list_push(&op->worker->ops, &psb_op_flight(op)->link);
}

void psb_op_unlink(psb_op_t *op)
{
    if (op->listed)
        psc_list_remove(&psb_op_flight(op)->link);
    op->listed = false;
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

psc_request_t *psb_op_hold(psb_op_t *op)
{
    if (op->core) {
        op->waiters++;
        psc_request_count_wait(op->core, +1);
    }
    return op->core;
}

/* Frees a request of the core that psb_op_leave_core() has left to the threads
 * that wait for it, when the last of them lets it go. */
static void op_let_go_left(psb_worker_t *worker, psc_request_t *held)
{
    psc_list_for_each(left, &worker->left, psb_left_t, link) {
        if (left->core != held)
            continue;
        psc_request_count_wait(held, -1);
        if (--left->waiters > 0)
            continue;
        psc_list_remove(&left->link);
        PyMem_Free(left);
        worker->api->request_free(held);
    }
}

void psb_op_let_go(psb_op_t *op, psc_request_t *held)
{
    if (!held)
        return;
    if (PSB_UNLIKELY(op->core != held)) {
        op_let_go_left(op->worker, held);
        return;
    }
    psc_request_count_wait(held, -1);
    op->waiters--;
    if (op->done && !op->matched)
        psb_op_free_core(op);
}

void psb_op_leave_core(psb_op_t *op)
{
    psb_left_t *left;

    if (!op->core)
        return;
    left = PyMem_Malloc(sizeof *left);
    if (left) { /* else the core's request is leaked */
        *left = (psb_left_t){.core = op->core, .waiters = op->waiters};
        psc_list_push(&op->worker->left, &left->link);
    }
    op->core = NULL;
    op->waiters = 0;
}

static void op_end(psb_op_t *op, psc_result_t result)
{
    psb_op_unlink(op);
    psb_op_set_done(op, result);
    psb_op_free_core(op);
}

static void op_fail(psb_op_t *op, psc_status_t status)
{
    op_end(op, (psc_result_t){.status = status, .rank = -1});
}

/* Returns memory for a message of `nbytes` bytes to a receive without buffer,
 * or NULL if there is none. */
static PyObject *op_make_fresh(const psb_op_t *op, uint64_t nbytes,
                               psc_iov_t *piece)
{
    PyObject *fresh = NULL;
    Py_ssize_t length;

    if (op->kind == PSB_RECV_VIEW || op->kind == PSB_RECV_MEMORY) {
        fresh = psb_memory_receive(op->worker, (size_t)nbytes,
                                   op->kind == PSB_RECV_VIEW);
        if (fresh)
            piece->base = psb_memory_base(fresh, &length);
    } else if (nbytes <= PY_SSIZE_T_MAX) {
        fresh = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)nbytes);
        if (fresh)
            piece->base = PyByteArray_AS_STRING(fresh);
    }
    piece->len = (size_t)nbytes;
    if (!fresh)
        PyErr_Clear();
    return fresh;
}

static void op_refuse(psb_op_t *op, psc_status_t status, uint64_t nbytes)
{
    op->worker->api->cancel(op->core);
    op_end(op, (psc_result_t){.status = status, .rank = -1, .nbytes = nbytes});
}

static void op_hand_over(psb_op_t *op, const psc_iov_t *iov, size_t n_iov)
{
    psc_status_t status = op->worker->api->recv_supply(op->core, iov, n_iov);

    if (PSB_UNLIKELY(psc_request_state(op->core) == PSC_REQUEST_MATCHED))
        op_refuse(op, status, 0);
}

static bool op_needs_memory(const psb_op_t *op)
{
    return !op->done && psc_request_state(op->core) == PSC_REQUEST_MATCHED;
}

/* Gives new memory to a receive that has matched. Making memory, or the error
 * that there is none, may start the garbage collector, whose finalizers may
 * advance this op; then the new memory is not needed. */
static void op_supply_fresh(psb_op_t *op)
{
    uint64_t nbytes = op->core->result.nbytes;
    psc_iov_t piece;
    PyObject *fresh = op_make_fresh(op, nbytes, &piece);

    if (PSB_UNLIKELY(!op_needs_memory(op))) {
        Py_XDECREF(fresh);
    } else if (!fresh) {
        op_refuse(op, PSC_ERR_NO_MEMORY, nbytes);
    } else {
        psb_op_set_memory(op, fresh);
        op_hand_over(op, &piece, 1);
    }
}

/* Shows a receive that takes Memory the message in its sender's memory, if the
 * message was lent. Like op_supply_fresh, may find it supplied already. */
static void op_supply_view(psb_op_t *op)
{
    PyObject *view = psb_memory_empty(op->worker);

    if (!view)
        PyErr_Clear();
    else if (op_needs_memory(op) && psb_memory_show(view, op->core))
        psb_op_set_memory(op, view);
    else
        Py_DECREF(view);
}

static void op_supply(psb_op_t *op)
{
    if (op->kind == PSB_COLLECTIVE) {
        op->worker->api->coll_call(op->core);
        return;
    }
    if (op->kind == PSB_RECV_INTO) {
        op_hand_over(op, psb_buffers_iov(&op->buffers),
                     psb_buffers_n(&op->buffers));
        return;
    }
    if (op->kind == PSB_RECV_VIEW || op->kind == PSB_RECV_MEMORY)
        op_supply_view(op);
    if (op_needs_memory(op))
        op_supply_fresh(op);
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
