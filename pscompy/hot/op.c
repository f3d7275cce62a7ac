/* One operation from its start to its value, whether it lives on the stack of
 * a blocking call or inside a Request. */
#include "hot.h"

/* ---- the worker's list ---- */

void hot_op_link(hot_op_t *op)
{
    hot_op_t *head = &op->worker->ops;

    if (op->prev)
        return;
    op->prev = head->prev;
    op->next = head;
    head->prev->next = op;
    head->prev = op;
}

void hot_op_unlink(hot_op_t *op)
{
    if (!op->prev)
        return;
    op->prev->next = op->next;
    op->next->prev = op->prev;
    op->prev = op->next = NULL;
}

/* ---- start ---- */

int hot_op_init(hot_op_t *op, const hot_call_t *call)
{
    bool writable = call->kind == HOT_RECV_INTO || call->kind == HOT_GET;

    op->prev = op->next = NULL;
    op->worker = call->worker;
    op->origin = call->origin;
    op->core = NULL;
    op->fresh = NULL;
    op->target = NULL;
    op->kind = call->kind;
    op->done = false;
    op->in_request = false;
    op->waiters = 0;
    op->polls = 0;
    op->result = (psc_result_t){.status = PSC_OK, .rank = -1};
    hot_buffers_init(&op->buffers);
    if (call->buf && hot_buffers_get(&op->buffers, call->buf, writable) < 0)
        return -1;
    op->fresh = call->keep;
    Py_XINCREF(op->fresh);
    return 0;
}

typedef psc_status_t (*op_starter_t)(hot_op_t *op, const hot_call_t *call,
                                     uint32_t flags, void *owner);

static psc_send_args_t op_send_args(const hot_op_t *op, const hot_call_t *call,
                                    uint32_t flags, void *owner)
{
    return (psc_send_args_t){.context = call->context,
                             .tag = call->tag,
                             .iov = hot_buffers_iov(&op->buffers),
                             .n_iov = op->buffers.n,
                             .flags = flags,
                             .owner = owner};
}

static psc_recv_args_t op_recv_args(const hot_op_t *op, const hot_call_t *call,
                                    uint32_t flags, void *owner)
{
    return (psc_recv_args_t){.source = call->conn,
                             .context = call->context,
                             .tag = call->tag,
                             .iov = hot_buffers_iov(&op->buffers),
                             .n_iov = op->buffers.n,
                             .flags = flags,
                             .owner = owner};
}

static psc_status_t op_start_send(hot_op_t *op, const hot_call_t *call,
                                  uint32_t flags, void *owner)
{
    psc_send_args_t args = op_send_args(op, call, flags, owner);

    return op->worker->api->send(call->conn, &args, &op->core);
}

static psc_status_t op_start_recv(hot_op_t *op, const hot_call_t *call,
                                  uint32_t flags, void *owner)
{
    psc_recv_args_t args = op_recv_args(op, call, flags, owner);

    if (!call->post)
        args.polls = op->polls = hot_op_polls(op);
    return op->worker->api->recv(op->worker->core, &args, &op->result,
                                 &op->core);
}

static psc_status_t op_start_recv_new(hot_op_t *op, const hot_call_t *call,
                                      uint32_t flags, void *owner)
{
    return op_start_recv(op, call, flags | PSC_FLAG_NO_BUFFER, owner);
}

static psc_status_t op_start_probe(hot_op_t *op, const hot_call_t *call,
                                   uint32_t flags, void *owner)
{
    psc_recv_args_t args = op_recv_args(op, call, flags, owner);

    return op->worker->api->probe(op->worker->core, &args, &op->result,
                                  &op->core);
}

static psc_status_t op_start_put(hot_op_t *op, const hot_call_t *call,
                                 uint32_t flags, void *owner)
{
    psc_send_args_t args = op_send_args(op, call, flags, owner);

    return op->worker->api->put(call->conn, &args, call->blob->buf,
                                (size_t)call->blob->len, call->offset,
                                &op->core);
}

static psc_status_t op_start_get(hot_op_t *op, const hot_call_t *call,
                                 uint32_t flags, void *owner)
{
    psc_send_args_t args = op_send_args(op, call, flags, owner);

    return op->worker->api->get(call->conn, &args, call->blob->buf,
                                (size_t)call->blob->len, call->offset,
                                &op->core);
}

static psc_status_t op_start_am(hot_op_t *op, const hot_call_t *call,
                                uint32_t flags, void *owner)
{
    psc_send_args_t args = op_send_args(op, call, flags, owner);

    return op->worker->api->am_send(call->conn, call->id, call->blob->buf,
                                    (size_t)call->blob->len, &args, &op->core);
}

static psc_status_t op_start_event(hot_op_t *op, const hot_call_t *call,
                                   uint32_t flags, void *owner)
{
    psc_status_t status = op->worker->api->event_create(
        op->worker->core, flags & ~PSC_FLAG_TRY, owner, &op->core);

    (void)call;
    return status == PSC_OK ? PSC_INPROGRESS : status;
}

static const op_starter_t op_starters[HOT_KINDS] = {
    [HOT_SEND] = op_start_send,
    [HOT_RECV_INTO] = op_start_recv,
    [HOT_RECV_NEW] = op_start_recv_new,
    [HOT_RECV_STATUS] = op_start_recv_new,
    [HOT_PROBE] = op_start_probe,
    [HOT_MATCH] = op_start_recv_new,
    [HOT_PUT] = op_start_put,
    [HOT_GET] = op_start_get,
    [HOT_AM] = op_start_am,
    [HOT_EVENT] = op_start_event,
};

static bool op_goes_out(const hot_op_t *op)
{
    return op->kind == HOT_SEND || op->kind == HOT_AM || op->kind == HOT_PUT ||
           op->kind == HOT_GET;
}

int hot_op_start(hot_op_t *op, hot_call_t *call, uint32_t flags, void *owner)
{
    op_starter_t start = op_starters[op->kind];
    hot_worker_t *worker = op->worker;
    psc_status_t status;

    if (HOT_UNLIKELY(worker->status != PSC_OK)) {
        hot_raise(worker->state, op->origin, worker->status, 0);
        return -1;
    }
    status = start(op, call, flags | PSC_FLAG_TRY, owner);
    if (HOT_UNLIKELY(status == PSC_ERR_NO_RESOURCE)) {
        worker->n_inside++;
        Py_BEGIN_ALLOW_THREADS
        status = start(op, call, flags, owner);
        Py_END_ALLOW_THREADS
        worker->n_inside--;
    }
    if (op->polls)
        hot_worker_polled(worker);
    if (status != PSC_INPROGRESS) {
        op->result.status = status;
        op->done = true;
    } else if (!call->post && op_goes_out(op)) {
        op->target = call->conn;
    }
    return 0;
}

/* ---- on its way ---- */

void hot_op_free_core(hot_op_t *op)
{
    if (!op->core || op->waiters)
        return;
    op->worker->api->request_free(op->core);
    op->core = NULL;
}

static void op_end(hot_op_t *op, psc_result_t result)
{
    op->result = result;
    op->done = true;
    hot_op_unlink(op);
    hot_op_free_core(op);
}

static void op_fail(hot_op_t *op, psc_status_t status)
{
    op_end(op, (psc_result_t){.status = status, .rank = -1});
}

/* The memory for a message whose length is known now. */
static int op_make_fresh(hot_op_t *op, psc_iov_t *piece)
{
    uint64_t nbytes = op->core->result.nbytes;

    if (nbytes <= PY_SSIZE_T_MAX)
        op->fresh = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)nbytes);
    if (!op->fresh) {
        PyErr_Clear();
        return -1;
    }
    piece->base = PyByteArray_AS_STRING(op->fresh);
    piece->len = (size_t)nbytes;
    return 0;
}

static void op_supply(hot_op_t *op)
{
    const psc_iov_t *iov = hot_buffers_iov(&op->buffers);
    const psc_api_t *api = op->worker->api;
    size_t n_iov = op->buffers.n;
    psc_status_t status;
    psc_iov_t piece;

    if (op->kind != HOT_RECV_INTO) {
        if (op_make_fresh(op, &piece) < 0) {
            api->cancel(op->core);
            op_fail(op, PSC_ERR_NO_MEMORY);
            return;
        }
        iov = &piece;
        n_iov = 1;
    }
    status = api->recv_supply(op->core, iov, n_iov);
    if (HOT_UNLIKELY(psc_request_state(op->core) == PSC_REQUEST_MATCHED)) {
        api->cancel(op->core);
        op_fail(op, status);
    }
}

bool hot_op_advance(hot_op_t *op)
{
    while (!op->done) {
        int state = psc_request_state(op->core);

        if (state == PSC_REQUEST_ACTIVE)
            return false;
        if (state == PSC_REQUEST_DONE) {
            op_end(op, op->core->result);
        } else if (op->kind == HOT_MATCH) {
            op->result = op->core->result;
            op->result.status = PSC_OK;
            op->done = true;
        } else {
            op_supply(op);
        }
    }
    return true;
}

void hot_op_abandon(hot_op_t *op, psc_status_t status)
{
    op->core = NULL;
    op_fail(op, status);
}

bool hot_op_withdraw(hot_op_t *op)
{
    hot_raised_t raised = hot_raised_take();
    bool gone = true;

    if (op->done)
        gone = true;
    else if (op->worker->api->cancel(op->core) == PSC_OK)
        op_fail(op, PSC_ERR_CANCELLED);
    else
        gone = hot_op_advance(op);
    hot_raised_restore(raised);
    return gone;
}

/* ---- its value ---- */

/* A connection that was asked for its message answers for itself, also when
 * it is not in use any more. */
static PyObject *op_source(hot_op_t *op)
{
    PyTypeObject *type = op->worker->state->connection_type;

    if (op->result.rank >= 0 || !op->origin ||
        !PyObject_TypeCheck(op->origin, type))
        return hot_worker_source(op->worker, op->result.source,
                                 op->result.rank);
    Py_INCREF(op->origin);
    return op->origin;
}

static PyObject *op_make_status(hot_op_t *op)
{
    PyTypeObject *type = op->worker->state->status_type;
    PyObject *source = op_source(op);
    PyObject *tag = PyLong_FromLong(op->result.tag);
    PyObject *nbytes = PyLong_FromUnsignedLongLong(op->result.nbytes);
    PyObject *status = type->tp_alloc(type, 3);

    if (!source || !tag || !nbytes || !status) {
        Py_XDECREF(source);
        Py_XDECREF(tag);
        Py_XDECREF(nbytes);
        Py_XDECREF(status);
        return NULL;
    }
    PyTuple_SET_ITEM(status, 0, source);
    PyTuple_SET_ITEM(status, 1, tag);
    PyTuple_SET_ITEM(status, 2, nbytes);
    return status;
}

static bool op_like_last(const psc_result_t *last, const psc_result_t *result)
{
    return last->rank == result->rank && last->tag == result->tag &&
           last->nbytes == result->nbytes;
}

/* In a World the last one is kept: messages that are alike share it. Outside
 * it would keep the connection that it names. */
PyObject *hot_op_status(hot_op_t *op)
{
    hot_worker_t *worker = op->worker;

    if (op->result.rank < 0)
        return op_make_status(op);
    if (!worker->status_kept ||
        !op_like_last(&worker->status_result, &op->result)) {
        PyObject *status = op_make_status(op);

        if (!status)
            return NULL;
        worker->status_result = op->result;
        Py_XSETREF(worker->status_kept, status);
    }
    Py_INCREF(worker->status_kept);
    return worker->status_kept;
}

static PyObject *op_fresh(hot_op_t *op)
{
    if (!op->fresh) /* an empty message needs no buffer from us */
        op->fresh = PyByteArray_FromStringAndSize(NULL, 0);
    Py_XINCREF(op->fresh);
    return op->fresh;
}

static PyObject *op_fresh_and_status(hot_op_t *op)
{
    PyObject *status = hot_op_status(op);
    PyObject *fresh = status ? op_fresh(op) : NULL;
    PyObject *pair = fresh ? PyTuple_Pack(2, fresh, status) : NULL;

    Py_XDECREF(status);
    Py_XDECREF(fresh);
    return pair;
}

PyObject *hot_op_value(hot_op_t *op)
{
    if (HOT_UNLIKELY(op->result.status != PSC_OK))
        return hot_raise(op->worker->state, op->origin, op->result.status,
                         op->result.nbytes);
    switch (op->kind) {
    case HOT_RECV_INTO:
    case HOT_PROBE:
        return hot_op_status(op);
    case HOT_RECV_NEW:
        return op_fresh(op);
    case HOT_RECV_STATUS:
        return op_fresh_and_status(op);
    case HOT_MATCH:
        return hot_message_new(op);
    default:
        Py_RETURN_NONE;
    }
}

void hot_op_clear(hot_op_t *op)
{
    hot_op_unlink(op);
    if (op->core) { /* a matched message that nobody took goes back */
        op->worker->api->cancel(op->core);
        hot_op_free_core(op);
    }
    Py_CLEAR(op->fresh);
    hot_buffers_release(&op->buffers);
}
