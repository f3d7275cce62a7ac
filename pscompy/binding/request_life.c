/* Requests from birth to end. A request that the program drops while it is in
 * flight completes all the same, and its buffers live until then: its finalizer
 * holds it by a reference of the core's side. */
#include "binding.h"

/* ---- birth ---- */

/* Moves *op into a new Request, which owns worker and origin from then on. */
static hot_request_t *request_new(PyTypeObject *type, hot_op_t *op)
{
    hot_request_t *self = (hot_request_t *)type->tp_alloc(type, 0);

    if (!self)
        return NULL;
    hot_op_unlink(op);
    self->op = *op;
    self->op.in_request = true;
    op->core = NULL;
    op->fresh = NULL;
    hot_buffers_init(&op->buffers);
    Py_INCREF(self->op.worker);
    Py_XINCREF(self->op.origin);
    return self;
}

static void request_hold(hot_request_t *self)
{
    self->held = true;
    Py_INCREF(self);
}

/* The finalizer of an object is called once. */
static void request_fly(hot_request_t *self)
{
    self->flying = true;
    if (HOT_UNLIKELY(PyObject_GC_IsFinalized((PyObject *)self)))
        request_hold(self);
    hot_op_link(&self->op);
}

/* The reference of the core's side goes; the caller has another. */
static void request_land(hot_request_t *self)
{
    if (!self->flying)
        return;
    self->flying = false;
    if (self->late)
        self->op.worker->n_late--;
    self->late = false;
    if (HOT_UNLIKELY(self->held)) {
        self->held = false;
        Py_DECREF(self);
    }
}

/* A task that asyncio has made of a request, and that was cancelled before its
 * first turn, has not begun to await it: that ends here, as a cancelled await
 * does. A request whose end the program knows stays as it is. */
static void request_forsake(hot_request_t *self)
{
    PyObject *later;

    if (self->told || self->op.worker->status != PSC_OK)
        return;
    later = PyObject_CallMethod((PyObject *)self, "_give_back", NULL);
    if (!later)
        PyErr_WriteUnraisable((PyObject *)self);
    Py_XDECREF(later);
}

void hot_request_finalize(PyObject *object)
{
    hot_request_t *self = (hot_request_t *)object;
    hot_raised_t raised = hot_raised_take();

    if (HOT_UNLIKELY(self->offered))
        request_forsake(self);
    if (self->flying && !self->held)
        request_hold(self);
    hot_raised_restore(raised);
}

/* -1: nothing was started. */
static int request_launch(hot_request_t *self, hot_call_t *call)
{
    request_fly(self);
    if (hot_op_start(&self->op, call, PSC_FLAG_NOTIFY, self) < 0) {
        self->op.done = true;
        request_land(self);
        return -1;
    }
    if (self->op.done && self->op.result.status != PSC_OK &&
        self->op.result.status != PSC_ERR_TRUNCATED) {
        hot_op_unlink(&self->op);
        request_land(self);
        hot_op_value(&self->op);
        return -1;
    }
    hot_request_advance(self);
    return 0;
}

PyObject *hot_request_post(hot_call_t *call, hot_op_t *op)
{
    PyTypeObject *type =
        call->type ? call->type : op->worker->state->request_type;
    hot_request_t *self = request_new(type, op);

    if (self && request_launch(self, call) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* It has ended, with nothing to say. */
static void request_rest(hot_request_t *self)
{
    Py_INCREF(Py_None);
    Py_XSETREF(self->value, Py_None);
    self->op.done = self->finished = self->told = true;
}

hot_request_t *hot_request_idle(PyTypeObject *type, hot_op_t *op)
{
    hot_request_t *self = request_new(type, op);

    if (self) {
        self->again = true;
        request_rest(self);
    }
    return self;
}

int hot_request_restart(hot_request_t *self, hot_call_t *call)
{
    Py_CLEAR(self->value);
    Py_CLEAR(self->error);
    Py_CLEAR(self->status);
    self->finished = self->told = self->giving = self->op.done = false;
    self->op.result = (psc_result_t){.status = PSC_OK, .rank = -1};
    if (request_launch(self, call) == 0)
        return 0;
    request_rest(self);
    return -1;
}

void hot_request_adopt(hot_op_t *op)
{
    hot_raised_t raised = hot_raised_take();
    hot_request_t *self =
        request_new(op->worker->state->request_type, op);

    if (self) {
        request_fly(self);
        self->late = true;
        self->op.worker->n_late++;
        self->held = true; /* by our reference */
    } else { /* no memory: rather lose the buffers than let them go */
        PyErr_Clear();
        hot_op_unlink(op);
        op->worker->api->request_free(op->core);
        op->core = NULL;
        hot_buffers_init(&op->buffers);
    }
    hot_raised_restore(raised);
}

/* ---- the end ---- */

void hot_request_call(hot_request_t *self, PyObject *callback)
{
    PyObject *result = PyObject_CallOneArg(callback, (PyObject *)self);

    if (!result)
        PyErr_WriteUnraisable(callback);
    Py_XDECREF(result);
}

static void request_run_callbacks(hot_request_t *self)
{
    PyObject *callbacks = self->callbacks;

    self->callbacks = NULL;
    for (Py_ssize_t i = 0; callbacks && i < PyList_GET_SIZE(callbacks); i++)
        hot_request_call(self, PyList_GET_ITEM(callbacks, i));
    Py_XDECREF(callbacks);
}

/* What an operation gave. */
typedef struct harvest {
    PyObject *value, *error, *status;
} harvest_t;

/* May run Python code, and so another thread that harvests the same. */
static harvest_t request_harvest(hot_request_t *self)
{
    psc_status_t status = self->op.result.status;
    harvest_t harvest = {NULL, NULL, NULL};

    if (self->op.kind != HOT_EVENT)
        harvest.value = hot_op_value(&self->op);
    else if (!self->value && !self->error)
        hot_raise(self->op.worker->state, self->op.origin, status, 0);
    if (PyErr_Occurred())
        harvest.error = hot_raised_instance();
    if (hot_op_receives(&self->op) &&
        (status == PSC_OK || status == PSC_ERR_TRUNCATED))
        harvest.status = hot_op_status(&self->op);
    if (PyErr_Occurred())
        PyErr_WriteUnraisable((PyObject *)self);
    return harvest;
}

/* False: another thread was first. */
static bool request_store(hot_request_t *self, harvest_t harvest)
{
    if (self->finished) {
        Py_XDECREF(harvest.value);
        Py_XDECREF(harvest.error);
        Py_XDECREF(harvest.status);
        return false;
    }
    if (harvest.value || harvest.error) { /* an event has its own already */
        self->value = harvest.value;
        self->error = harvest.error;
    }
    self->status = harvest.status;
    self->finished = true;
    return true;
}

/* The message of a receive may have to go back from where it is. */
static bool request_keeps_memory(const hot_request_t *self)
{
    return hot_op_receives(&self->op) && !self->told &&
           (self->op.result.status == PSC_OK ||
            self->op.result.status == PSC_ERR_TRUNCATED);
}

void hot_request_told(hot_request_t *self)
{
    self->told = true;
    if (self->finished && !self->again)
        hot_buffers_release(&self->op.buffers);
}

static void request_finish(hot_request_t *self)
{
    if (self->giving)
        hot_request_return(self);
    if (!request_store(self, request_harvest(self)))
        return;
    hot_op_unlink(&self->op);
    hot_op_free_core(&self->op);
    if (!request_keeps_memory(self)) {
        if (!self->again)
            hot_buffers_release(&self->op.buffers);
        Py_CLEAR(self->op.fresh);
    }
    request_run_callbacks(self);
    request_land(self);
}

bool hot_request_advance(hot_request_t *self)
{
    if (self->finished)
        return true;
    if (!hot_op_advance(&self->op))
        return false;
    Py_INCREF(self);
    request_finish(self);
    Py_DECREF(self);
    return true;
}

void hot_request_abandon(hot_request_t *self, psc_status_t status)
{
    hot_op_abandon(&self->op, status);
    hot_request_advance(self);
}

bool hot_request_withdraw(hot_request_t *self)
{
    hot_raised_t raised = hot_raised_take();
    bool gone = hot_op_withdraw(&self->op);

    if (gone)
        hot_request_advance(self);
    hot_raised_restore(raised);
    return gone;
}

hot_outcome_t hot_request_wait(hot_request_t *self, int64_t deadline)
{
    hot_outcome_t outcome = HOT_DONE;

    if (!hot_request_advance(self))
        outcome = hot_op_wait(&self->op, deadline);
    if (outcome == HOT_DONE)
        hot_request_advance(self);
    return outcome;
}

PyObject *hot_request_result(hot_request_t *self)
{
    if (!self->told)
        hot_request_told(self);
    if (self->value) {
        Py_INCREF(self->value);
        return self->value;
    }
    /* The same exception may be raised again; its old traceback is of no use
     * to anybody and would grow. */
    PyException_SetTraceback(self->error, Py_None);
    PyErr_SetObject((PyObject *)Py_TYPE(self->error), self->error);
    return NULL;
}
