/* Runs calls of Connection and Communicator, which differ only in how they name
 * the peer. */
#include "connection.h"
#include "request.h"

int psb_call_enter(psb_call_t *call)
{
    if (psb_worker_enter(call->op.worker, call->op.origin) < 0)
        return -1;
    if (!call->connection)
        return 0;
    call->conn = psb_connection_enter(call->connection);
    return call->conn ? 0 : -1;
}

static PyObject *call_value(psb_op_t *op)
{
    return op->matched ? psb_message_new(op) : psb_op_value(op);
}

static PyObject *call_wait(psb_op_t *op, int64_t deadline, PyObject *timeout)
{
    return op->done || psb_op_block(op, deadline, timeout) ? call_value(op)
                                                           : NULL;
}

static PyObject *call_block(psb_call_t *call)
{
    return psb_call_start(call, 0, NULL) < 0
               ? NULL
               : call_wait(&call->op, call->deadline, call->timeout);
}

/* Withdraws the request, because the deadline has passed or a signal handler
 * has raised an exception. The signal handler's exception stays raised. */
static PyObject *call_give_up(psb_request_t *request, psb_outcome_t outcome,
                              PyObject *timeout)
{
    bool gone = psb_request_withdraw(request);

    if (outcome != PSB_TIMEOUT)
        return NULL;
    if (gone && psb_op_result(&request->op)->status != PSC_ERR_CANCELLED)
        /* the operation completed before it could be withdrawn */
        return psb_request_result(request);
    return psb_raise_timeout(&request->op, timeout,
                             gone ? NULL : (PyObject *)request);
}

static PyObject *call_finish(psb_request_t *request, const psb_call_t *call)
{
    psb_outcome_t outcome = psb_request_wait(request, call->deadline);

    return outcome == PSB_DONE ? psb_request_result(request)
                               : call_give_up(request, outcome, call->timeout);
}

/* Runs a blocking call as a Request, because a Timeout of the call may need
 * that Request for its attribute `request`. */
static PyObject *call_block_until(psb_call_t *call)
{
    PyObject *posted = psb_request_post(call), *value;

    if (!posted)
        return NULL;
    value = call_finish((psb_request_t *)posted, call);
    Py_DECREF(posted);
    return value;
}

/* Returns true if a Timeout of the call may leave an operation in flight. It
 * may for a call with a deadline, except probes, which can always be
 * withdrawn. */
static bool call_may_be_late(const psb_call_t *call)
{
    return call->deadline != PSC_FOREVER && call->op.kind != PSB_PROBE &&
           call->op.kind != PSB_MATCH;
}

PyObject *psb_call_run(psb_call_t *call)
{
    PyObject *value = NULL;

    if (psb_call_take(call) < 0 || psb_call_enter(call) < 0)
        value = NULL;
    else if (call->post)
        value = psb_request_post(call);
    else if (PSB_UNLIKELY(call_may_be_late(call)))
        value = call_block_until(call);
    else
        value = call_block(call);
    psb_op_clear(&call->op);
    return value;
}

PyObject *psb_call_view(psb_call_t *call)
{
    psb_state_t *state = call->op.worker->state;
    PyObject *message, *make, *view, *array = NULL;

    if (!call->dtype && !call->shape)
        return psb_call_run(call);
    make =
        psb_import_once(&state->array_viewer, "pscompy.api.arrays", "viewer");
    view = make ? PyObject_CallFunctionObjArgs(
                      make, call->dtype ? call->dtype : Py_None,
                      call->shape ? call->shape : Py_None, NULL)
                : NULL;
    call->op.kind = PSB_MATCH;
    message = view ? psb_call_run(call) : NULL;
    if (message)
        array = PyObject_CallOneArg(view, message);
    Py_XDECREF(message);
    Py_XDECREF(view);
    return array;
}

/* ---- send and receive at the same time ---- */

PyObject *psb_call_sendrecv(psb_call_t *send, psb_call_t *recv)
{
    PyObject *posted, *sent, *value = NULL;

    recv->post = true;
    posted = psb_call_run(recv);
    if (!posted)
        return NULL;
    sent = psb_call_run(send);
    if (sent)
        value = call_finish((psb_request_t *)posted, send);
    else
        psb_request_withdraw((psb_request_t *)posted);
    Py_XDECREF(sent);
    Py_DECREF(posted);
    return value;
}

static psc_status_t call_look(psb_call_t *call, psc_result_t *result_p)
{
    psc_recv_args_t args = {
        .source = call->conn, .context = call->op.context, .tag = call->op.tag};
    psb_worker_t *worker = call->op.worker;
    psc_status_t status;

    args.flags = PSC_FLAG_TRY;
    status = worker->api->iprobe(worker->core, &args, result_p);
    if (PSB_UNLIKELY(status == PSC_ERR_NO_RESOURCE)) {
        args.flags = 0;
        worker->n_inside++;
        Py_BEGIN_ALLOW_THREADS status =
            worker->api->iprobe(worker->core, &args, result_p);
        Py_END_ALLOW_THREADS worker->n_inside--;
    }
    return status;
}

PyObject *psb_call_iprobe(psb_call_t *call)
{
    psc_result_t result = {.rank = -1};

    if (psb_call_enter(call) < 0)
        return NULL;
    result.status = call_look(call, &result);
    if (result.status == PSC_INPROGRESS)
        Py_RETURN_NONE;
    psb_op_set_done(&call->op, result);
    return psb_op_value(&call->op);
}

/* The method improbe(): starts a receive without buffer, and withdraws it
 * unless it matches a message at once. */
PyObject *psb_call_improbe(psb_call_t *call)
{
    psb_op_t *op = &call->op;
    PyObject *value;

    if (psb_call_enter(call) < 0)
        return NULL;
    op->worker->api->progress(op->worker->core, PSC_FLAG_TRY);
    if (psb_call_start(call, 0, NULL) < 0)
        return NULL;
    if (!psb_op_advance(op) && !psb_op_withdraw(op)) {
        value = call_wait(op, PSC_FOREVER, NULL);
    } else if (psb_op_result(op)->status == PSC_ERR_CANCELLED) {
        value = Py_NewRef(Py_None);
    } else {
        value = call_value(op);
    }
    psb_op_clear(op);
    return value;
}
