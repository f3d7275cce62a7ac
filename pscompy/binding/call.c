/* From what a method was asked to what it returns: the same for Connection
 * and World, which differ only in how they name the peer. */
#include "binding.h"

int hot_call_enter(hot_call_t *call)
{
    call->conn = NULL;
    if (hot_worker_enter(call->worker, call->origin) < 0)
        return -1;
    if (!call->connection)
        return 0;
    call->conn = hot_connection_enter(call->connection);
    return call->conn ? 0 : -1;
}

/* ---- blocking ---- */

/* On the stack. If a signal handler raises, or the time is over, what has not
 * begun is withdrawn, and the rest finishes as a Request. */
static PyObject *call_wait(hot_op_t *op, int64_t deadline)
{
    hot_outcome_t outcome = op->done ? HOT_DONE : hot_op_wait(op, deadline);

    if (outcome == HOT_DONE)
        return hot_op_value(op);
    if (!hot_op_withdraw(op))
        hot_request_adopt(op);
    else if (outcome == HOT_TIMEOUT && op->result.status != PSC_ERR_CANCELLED)
        return hot_op_value(op); /* just in time */
    if (outcome == HOT_TIMEOUT)
        hot_raise_timeout(op->worker->state, op->origin, NULL);
    return NULL;
}

static PyObject *call_block(hot_call_t *call, hot_op_t *op)
{
    return hot_op_start(op, call, 0, NULL) < 0 ? NULL
                                               : call_wait(op, call->deadline);
}

/* The time is over, or a signal handler has raised: its exception stays. */
static PyObject *call_give_up(hot_request_t *request, hot_outcome_t outcome)
{
    bool gone = hot_request_withdraw(request);

    if (outcome != HOT_TIMEOUT)
        return NULL;
    if (gone && request->op.result.status != PSC_ERR_CANCELLED)
        return hot_request_result(request); /* just in time */
    return hot_raise_timeout(request->op.worker->state, request->op.origin,
                             gone ? NULL : (PyObject *)request);
}

static PyObject *call_finish(hot_request_t *request, int64_t deadline)
{
    hot_outcome_t outcome = hot_request_wait(request, deadline);

    return outcome == HOT_DONE ? hot_request_result(request)
                               : call_give_up(request, outcome);
}

/* As a Request, which Timeout.request may have to name. */
static PyObject *call_block_until(hot_call_t *call, hot_op_t *op)
{
    PyObject *posted = hot_request_post(call, op), *value;

    if (!posted)
        return NULL;
    value = call_finish((hot_request_t *)posted, call->deadline);
    Py_DECREF(posted);
    return value;
}

/* With a time limit, unless it only looks: that can always be withdrawn. */
static bool call_may_be_late(const hot_call_t *call)
{
    return call->deadline != PSC_FOREVER && call->kind != HOT_PROBE &&
           call->kind != HOT_MATCH;
}

PyObject *hot_call_run(hot_call_t *call)
{
    PyObject *value = NULL;
    hot_op_t op;

    if (hot_op_init(&op, call) < 0)
        return NULL;
    if (hot_call_enter(call) < 0)
        value = NULL;
    else if (call->post)
        value = hot_request_post(call, &op);
    else if (HOT_UNLIKELY(call_may_be_late(call)))
        value = call_block_until(call, &op);
    else
        value = call_block(call, &op);
    hot_op_clear(&op);
    return value;
}

/* ---- both directions ---- */

PyObject *hot_call_sendrecv(hot_call_t *send, hot_call_t *recv)
{
    PyObject *posted, *sent, *value = NULL;

    recv->post = true;
    posted = hot_call_run(recv);
    if (!posted)
        return NULL;
    sent = hot_call_run(send);
    if (sent)
        value = call_finish((hot_request_t *)posted, send->deadline);
    else
        hot_request_withdraw((hot_request_t *)posted);
    Py_XDECREF(sent);
    Py_DECREF(posted);
    return value;
}

/* ---- looking ---- */

static psc_status_t call_look(hot_call_t *call, psc_result_t *result_p)
{
    psc_recv_args_t args = {.source = call->conn,
                            .context = call->context,
                            .tag = call->tag};
    hot_worker_t *worker = call->worker;
    psc_status_t status;

    args.flags = PSC_FLAG_TRY;
    status = worker->api->iprobe(worker->core, &args, result_p);
    if (HOT_UNLIKELY(status == PSC_ERR_NO_RESOURCE)) {
        args.flags = 0;
        worker->n_inside++;
        Py_BEGIN_ALLOW_THREADS
        status = worker->api->iprobe(worker->core, &args, result_p);
        Py_END_ALLOW_THREADS
        worker->n_inside--;
    }
    return status;
}

PyObject *hot_call_iprobe(hot_call_t *call)
{
    psc_status_t status;
    hot_op_t op;

    call->kind = HOT_PROBE;
    if (hot_op_init(&op, call) < 0 || hot_call_enter(call) < 0)
        return NULL;
    status = call_look(call, &op.result);
    if (status == PSC_INPROGRESS)
        Py_RETURN_NONE;
    op.result.status = status;
    return hot_op_value(&op);
}

/* A receive without buffer that is taken back unless it matches at once. */
PyObject *hot_call_improbe(hot_call_t *call)
{
    PyObject *value;
    hot_op_t op;

    call->kind = HOT_MATCH;
    if (hot_op_init(&op, call) < 0 || hot_call_enter(call) < 0)
        return NULL;
    call->worker->api->progress(call->worker->core, PSC_FLAG_TRY);
    if (hot_op_start(&op, call, 0, NULL) < 0)
        return NULL;
    if (!hot_op_advance(&op) && !hot_op_withdraw(&op)) {
        value = call_wait(&op, PSC_FOREVER);
    } else if (op.result.status == PSC_ERR_CANCELLED) {
        value = Py_None;
        Py_INCREF(value);
    } else {
        value = hot_op_value(&op);
    }
    hot_op_clear(&op);
    return value;
}

/* ---- matched ---- */

PyObject *hot_call_recv_matched(hot_op_t *matched, PyObject *buf)
{
    hot_call_t call = {.worker = matched->worker,
                       .origin = matched->origin,
                       .context = matched->context,
                       .deadline = PSC_FOREVER};
    PyObject *value;
    hot_op_t op;

    hot_verb_receive(&call, buf);
    if (hot_op_init(&op, &call) < 0)
        return NULL;
    op.core = matched->core;
    hot_op_unlink(matched);
    matched->core = NULL;
    value = call_wait(&op, PSC_FOREVER);
    hot_op_clear(&op);
    return value;
}
