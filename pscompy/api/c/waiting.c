/* Blocks: a bounded number of polls with the GIL, which is enough for a short
 * exchange, then the core's wait without the GIL. The core's wait returns now
 * and then although nothing has completed, so that call-backs run, signals are
 * handled, and the end of the worker is noticed. */
#include "request.h"
#include "guard.h"

static int64_t wait_left(int64_t deadline)
{
    int64_t left;

    if (deadline == PSC_FOREVER)
        return PSC_FOREVER;
    left = deadline - psc_clock_now();
    return left > 0 ? left : 0;
}

/* Blocks once, for a caller that has just checked the requests and keeps them
 * alive. Signals are handled first, so that a message that has arrived is
 * delivered before Ctrl-C is raised. If `sleeper` is given, there is one
 * request, and the thread polls only while no other thread does. */
static psb_outcome_t wait_step(psb_worker_t *worker, psc_sleeper_t *sleeper,
                               psc_request_t *const *requests, size_t n,
                               psc_wait_mode_t mode, int64_t deadline)
{
    int64_t left = wait_left(deadline);
    psc_status_t status;

    if (PyErr_CheckSignals() < 0)
        return PSB_RAISED;
    if (worker->status != PSC_OK) {
        psb_raise(worker->state, NULL, worker->status, 0);
        return PSB_RAISED;
    }
    if (left && !psb_guard_may_wait()) {
        psb_guard_refuse();
        return PSB_RAISED;
    }
    worker->n_inside++;
    Py_BEGIN_ALLOW_THREADS status =
        sleeper ? worker->api->sleeper_wait(sleeper, requests[0], left)
                : worker->api->wait(worker->core, requests, n, mode, left);
    Py_END_ALLOW_THREADS worker->n_inside--;
    psb_worker_drain(worker);
    if (status == PSC_ERR_TIMEOUT && deadline != PSC_FOREVER &&
        psc_clock_now() >= deadline)
        return PSB_TIMEOUT;
    if (status == PSC_OK || status == PSC_INPROGRESS ||
        status == PSC_ERR_TIMEOUT || status == PSC_ERR_INTERRUPTED)
        return PSB_AGAIN;
    psb_raise(worker->state, NULL, status, 0);
    return PSB_RAISED;
}

/* ---- one operation ---- */

/* Raises Closed, and returns true, if another thread has closed the connection
 * of this blocking op (op->target). */
static bool op_left_behind(psb_op_t *op)
{
    psc_conn_t *target = psb_op_goes_out(op) ? psb_op_flight(op)->target : NULL;

    if (!target || op->worker->api->conn_state(target) != PSC_CONN_CLOSING)
        return false;
    psb_raise(op->worker->state, op->origin, PSC_ERR_CLOSED, 0);
    return true;
}

static psb_outcome_t op_step(psb_op_t *op, psc_sleeper_t *sleeper,
                             int64_t deadline)
{
    psc_request_t *held = psb_op_hold(op);
    psb_outcome_t outcome =
        wait_step(op->worker, sleeper, &held, 1, PSC_WAIT_ALL, deadline);

    psb_op_let_go(op, held);
    return outcome;
}

static psb_outcome_t op_sleep(psb_op_t *op, psc_sleeper_t *sleeper,
                              int64_t deadline)
{
    psb_outcome_t outcome = PSB_AGAIN;

    psb_op_link(op);
    while (outcome == PSB_AGAIN && !psb_op_advance(op))
        outcome =
            op_left_behind(op) ? PSB_RAISED : op_step(op, sleeper, deadline);
    if (outcome == PSB_TIMEOUT)
        psb_op_advance(op);
    return outcome;
}

static psb_outcome_t wait_op(psb_op_t *op, int64_t deadline)
{
    psb_worker_t *worker = op->worker;
    psb_outcome_t outcome;

    if (psb_op_advance(op))
        return PSB_DONE;
    if (!op->polls) { /* psb_call_start has not polled yet */
        worker->api->spin(worker->core, op->core, psb_op_polls(op));
        if (psb_op_advance(op))
            return PSB_DONE;
    }
    outcome = op_sleep(op, NULL, deadline);
    if (outcome == PSB_RAISED)
        return PSB_RAISED;
    return op->done ? PSB_DONE : PSB_TIMEOUT;
}

psb_outcome_t psb_request_wait(psb_request_t *self, int64_t deadline)
{
    psb_outcome_t outcome = PSB_DONE;

    /* A call-back may have started the request again. */
    while (outcome == PSB_DONE && !psb_request_advance(self))
        outcome = wait_op(&self->op, deadline);
    return outcome;
}

psb_outcome_t psb_request_wait_in_background(psb_request_t *self,
                                             psc_sleeper_t *sleeper,
                                             int64_t deadline)
{
    psb_outcome_t outcome = PSB_DONE;

    if (!psb_request_advance(self))
        outcome = op_sleep(&self->op, sleeper, deadline);
    if (outcome == PSB_RAISED)
        return PSB_RAISED;
    return psb_request_advance(self) ? PSB_DONE : PSB_TIMEOUT;
}

/* If a signal handler raises, or the deadline passes, an op that has not begun
 * is withdrawn. Any other op goes on inside a Request. */
bool psb_op_block(psb_op_t *op, int64_t deadline, PyObject *timeout)
{
    psb_outcome_t outcome = wait_op(op, deadline);

    if (outcome == PSB_DONE)
        return true;
    if (!psb_op_withdraw(op))
        psb_request_adopt(op);
    else if (outcome != PSB_TIMEOUT)
        psb_op_return(op); /* a message that has arrived meanwhile */
    else if (psb_op_result(op)->status != PSC_ERR_CANCELLED)
        return true; /* the operation completed before it could be withdrawn */
    if (outcome == PSB_TIMEOUT)
        psb_raise_timeout(op, timeout, NULL);
    return false;
}

/* ---- several requests ---- */

PyObject *psb_wait_refuse(PyObject *object)
{
    return PyErr_Format(PyExc_TypeError,
                        "requests are waited for in a list, as in "
                        "wait_all([a, b]), not %.100s",
                        Py_TYPE(object)->tp_name);
}

static psb_op_t *wait_op_of(PyObject *tuple, size_t index)
{
    PyObject *item = PyTuple_GET_ITEM(tuple, (Py_ssize_t)index);

    return &((psb_request_t *)item)->op;
}

/* Returns the requests as a tuple. All must be of one session: a wait for one
 * session makes no progress of another, and a wait that alternates between
 * sessions would have to poll. */
static PyObject *wait_requests(psb_state_t *state, PyObject *iterable)
{
    psb_worker_t *worker = NULL;
    PyObject *tuple;

    if (!Py_TYPE(iterable)->tp_iter && !PySequence_Check(iterable))
        return psb_wait_refuse(iterable);
    tuple = PySequence_Tuple(iterable);

    for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        psb_request_t *request = (psb_request_t *)item;

        if (!PyObject_TypeCheck(item, state->request_type)) {
            PyErr_Format(PyExc_TypeError,
                         "only Requests can be waited for, not %.100s",
                         Py_TYPE(item)->tp_name);
            Py_CLEAR(tuple);
        } else if (worker && request->op.worker != worker) {
            PyErr_SetString(PyExc_ValueError,
                            "the requests belong to different sessions: wait "
                            "for each session's, or await them with asyncio");
            Py_CLEAR(tuple);
        } else {
            worker = request->op.worker;
        }
    }
    return tuple;
}

/* Waits for one request after the other; the core makes progress on all
 * requests meanwhile. */
static bool wait_until_all(PyObject *tuple, int64_t deadline, PyObject *timeout)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        psb_request_t *request = (psb_request_t *)PyTuple_GET_ITEM(tuple, i);
        psb_outcome_t outcome = psb_request_wait(request, deadline);

        if (outcome == PSB_TIMEOUT)
            psb_raise_timeout(&request->op, timeout, NULL);
        if (outcome != PSB_DONE)
            return false;
    }
    return true;
}

/* All requests have completed, and the program learns of it even if an
 * exception is raised. */
static void wait_mark_seen(PyObject *tuple)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        psb_request_t *request = (psb_request_t *)PyTuple_GET_ITEM(tuple, i);

        if (request->op.finished)
            psb_request_mark_seen(request);
    }
}

PyObject *psb_wait_all(psb_state_t *state, PyObject *requests, int64_t deadline,
                       PyObject *timeout)
{
    PyObject *tuple = wait_requests(state, requests);
    PyObject *results;

    if (!tuple)
        return NULL;
    results = PyList_New(PyTuple_GET_SIZE(tuple));
    if (results && !wait_until_all(tuple, deadline, timeout))
        Py_CLEAR(results);
    if (results)
        wait_mark_seen(tuple);
    for (Py_ssize_t i = 0; results && i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        PyObject *value = psb_request_result((psb_request_t *)item);

        if (value)
            PyList_SET_ITEM(results, i, value);
        else
            Py_CLEAR(results);
    }
    Py_DECREF(tuple);
    return results;
}

/* Returns the index in `tuple` of the first request that has completed, or -1
 * if none has. */
static Py_ssize_t wait_find_done(PyObject *tuple)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        if (psb_request_advance((psb_request_t *)PyTuple_GET_ITEM(tuple, i)))
            return i;
    }
    return -1;
}

/* Blocks once for any of the requests. */
static psb_outcome_t wait_any_step(PyObject *tuple, psc_request_t **held,
                                   int64_t deadline)
{
    size_t n = (size_t)PyTuple_GET_SIZE(tuple), n_held = 0;
    psb_outcome_t outcome = PSB_AGAIN;

    while (n_held < n &&
           (held[n_held] = psb_op_hold(wait_op_of(tuple, n_held))))
        n_held++;
    /* else a call-back of an earlier request has completed this one */
    if (n_held == n)
        outcome = wait_step(wait_op_of(tuple, 0)->worker, NULL, held, n,
                            PSC_WAIT_ANY, deadline);
    for (size_t i = 0; i < n_held; i++)
        psb_op_let_go(wait_op_of(tuple, i), held[i]);
    return outcome;
}

static Py_ssize_t wait_until_any(PyObject *tuple, int64_t deadline,
                                 PyObject *timeout)
{
    size_t n = (size_t)PyTuple_GET_SIZE(tuple);
    psc_request_t **held = PyMem_Calloc(n, sizeof *held);
    psb_outcome_t outcome = PSB_AGAIN;
    Py_ssize_t done = -1;

    if (!held) {
        PyErr_NoMemory();
        return -1;
    }
    while (outcome == PSB_AGAIN && (done = wait_find_done(tuple)) < 0)
        outcome = wait_any_step(tuple, held, deadline);
    if (outcome == PSB_TIMEOUT)
        done = wait_find_done(tuple);
    PyMem_Free(held);
    if (done < 0 && outcome == PSB_TIMEOUT)
        psb_raise_timeout(wait_op_of(tuple, 0), timeout, NULL);
    return done;
}

PyObject *psb_wait_any(psb_state_t *state, PyObject *requests, int64_t deadline,
                       PyObject *timeout)
{
    PyObject *tuple = wait_requests(state, requests);
    PyObject *value, *pair = NULL;
    Py_ssize_t index = -1;

    if (!tuple)
        return NULL;
    if (PyTuple_GET_SIZE(tuple) == 0)
        PyErr_SetString(PyExc_ValueError, "no requests to wait for");
    else
        index = wait_until_any(tuple, deadline, timeout);
    if (index >= 0) {
        PyObject *item = PyTuple_GET_ITEM(tuple, index);

        value = psb_request_result((psb_request_t *)item);
        if (value)
            pair = Py_BuildValue("(nN)", index, value);
    }
    Py_DECREF(tuple);
    return pair;
}
