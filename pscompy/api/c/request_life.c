/* Requests from start to completion. If the program drops its last reference to
 * a receive without having learnt of its completion, the receive is withdrawn,
 * or its message goes back to the queue. For any other request in flight the
 * finalizer adds a reference, so that the request and its buffers live until
 * the operation completes. */
#include "request.h"
#include "guard.h"

/* ---- start ---- */

/* Sets the request to completed, with the value None. */
static void request_rest(psb_request_t *self)
{
    PyObject *outcome = self->outcome;

    self->outcome = Py_NewRef(Py_None);
    psb_op_set_done(&self->op, (psc_result_t){.status = PSC_OK, .rank = -1});
    self->op.failed = false;
    self->op.finished = self->op.seen = true;
    Py_CLEAR(*psb_request_status(self));
    Py_XDECREF(outcome);
}

/* Makes a Request that is completed, for the operation of `op`. */
static psb_request_t *request_new(PyTypeObject *type, psb_op_t *op)
{
    psb_request_t *self;

    if (psb_buffers_keep(&op->buffers) < 0 ||
        !(self = (psb_request_t *)type->tp_alloc(type, 0)))
        return NULL;
    Py_INCREF(op->worker);
    self->op.worker = op->worker;
    self->op.origin = Py_XNewRef(op->origin);
    self->op.kind = op->kind;
    self->op.context = op->context;
    self->op.tag = op->tag;
    self->op.in_request = true;
    request_rest(self);
    return self;
}

/* Moves *op into a completed Request, which has the same worker and origin. */
static void request_take(psb_request_t *self, psb_op_t *op)
{
    PyObject *outcome = self->outcome, *status = *psb_request_status(self);

    psb_op_leave_core(&self->op);
    psb_op_unlink(op);
    op->in_request = true;
    op->awaits = self->op.awaits;
    op->awaitable = self->op.awaitable;
    self->op = *op;
    self->outcome = NULL;
    *psb_request_callbacks(self) = NULL;
    op->core = NULL;
    op->memory = NULL;
    op->in_room = false;
    psb_buffers_init(&op->buffers);
    Py_XDECREF(outcome);
    Py_XDECREF(status);
}

static void request_refer_to_self(psb_request_t *self)
{
    self->op.self_reference = true;
    Py_INCREF(self);
}

/* Marks the request as in flight. Python calls the finalizer of an object only
 * once, so a request whose finalizer has run and that is started again keeps
 * itself alive by a reference of its own. */
static void request_begin(psb_request_t *self)
{
    self->op.in_flight = true;
    if (PSB_UNLIKELY(PyObject_GC_IsFinalized((PyObject *)self)))
        request_refer_to_self(self);
}

/* Called when the operation has completed. Drops the reference that the request
 * holds to itself, if any. The caller has another reference. */
static void request_end(psb_request_t *self)
{
    if (!self->op.in_flight)
        return;
    self->op.in_flight = false;
    if (self->op.unnotified)
        self->op.worker->n_unnotified--;
    self->op.unnotified = false;
    if (PSB_UNLIKELY(self->op.self_reference)) {
        self->op.self_reference = false;
        Py_DECREF(self);
    }
}

/* Withdraws a request as a cancelled await does. */
static void request_give_back(psb_request_t *self)
{
    PyObject *later = PyObject_CallMethod((PyObject *)self, "_requeue", NULL);

    if (!later)
        PyErr_WriteUnraisable((PyObject *)self);
    Py_XDECREF(later);
}

/* Withdraws a receive of which nobody wants to know any more, without running
 * code in Python. If its message is arriving, the message goes back to the
 * queue when it has arrived. */
static void request_drop_receive(psb_request_t *self)
{
    if (!psb_op_give_up(&self->op)) {
        self->op.giving_back = true;
        return;
    }
    psb_op_return(&self->op);
    request_end(self);
    request_rest(self);
}

/* Withdraws the request if the program has dropped it before it learnt of the
 * completion, and no call-back is to tell it: a receive, and the request of a
 * task that asyncio has made and that was cancelled before its first step. */
static void request_withdraw(psb_request_t *self)
{
    psb_op_t *op = &self->op;
    bool unwanted = !op->told && !psb_request_watched(self);

    if (op->seen || op->worker->status != PSC_OK ||
        !op->worker->state->request_type) /* the module was cleared */
        return;
    if (psb_op_receives(op) && unwanted)
        request_drop_receive(self);
    else if (op->awaitable || (op->takes && unwanted))
        request_give_back(self);
}

void psb_request_unwatched(psb_request_t *self)
{
    /* The finalizer has run. The collector frees the request together with the
     * coroutine that had added the call-back. */
    if (self->op.self_reference)
        request_withdraw(self);
}

void psb_request_finalize(PyObject *object)
{
    psb_request_t *self = (psb_request_t *)object;
    psb_raised_t raised = psb_raised_take();

    request_withdraw(self);
    if (self->op.in_flight && !self->op.self_reference) {
        request_refer_to_self(self);
        /* Nobody asks for its exception, which the origin would word. The
         * request must not keep the session alive by its origin. */
        if (!psb_request_watched(self))
            Py_CLEAR(self->op.origin);
    }
    psb_raised_restore(raised);
}

/* Returns true, with an exception, if the operation has failed at once. */
static bool request_refused(psb_op_t *op)
{
    psc_status_t status = op->done ? psb_op_result(op)->status : PSC_OK;

    if (status == PSC_OK || status == PSC_ERR_TRUNCATED)
        return false;
    psb_op_value(op);
    return true;
}

/* Starts the operation of the call, and moves it into the completed Request.
 * Until then, which may be a while without the GIL, other threads see the
 * Request as it was. Returns -1 with an exception, and leaves the call's op, if
 * the operation could not be started. */
static int request_launch(psb_request_t *self, psb_call_t *call)
{
    if (psb_call_start(call, PSC_FLAG_NOTIFY, self) < 0 ||
        request_refused(&call->op))
        return -1;
    request_take(self, &call->op);
    request_begin(self);
    if (!self->op.done)
        psb_op_link(&self->op);
    psb_request_advance(self);
    return 0;
}

PyObject *psb_request_post(psb_call_t *call)
{
    PyTypeObject *type =
        call->type ? call->type : call->op.worker->state->request_type;
    psb_request_t *self = request_new(type, &call->op);

    if (self && request_launch(self, call) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

psb_request_t *psb_request_idle(PyTypeObject *type, psb_op_t *op)
{
    psb_request_t *self = request_new(type, op);

    if (self) {
        op->persistent = true;
        request_take(self, op);
        request_rest(self);
    }
    return self;
}

int psb_request_restart(psb_request_t *self, psb_call_t *call)
{
    psb_op_t *op = &call->op;
    PyObject *memory = op->memory;

    *op = self->op;
    op->memory = memory;
    psb_request_mark_seen(self);
    op->core = NULL;
    op->waiters = 0;
    op->failed = op->finished = op->seen = op->giving_back = op->done = false;
    op->told = false; /* the call-backs were told of the previous start */
    if (request_launch(self, call) == 0)
        return 0;
    request_rest(self);
    return -1;
}

void psb_request_adopt(psb_op_t *op)
{
    psb_raised_t raised = psb_raised_take();
    psb_request_t *self = request_new(op->worker->state->request_type, op);

    if (self) {
        request_take(self, op);
        request_begin(self);
        psb_op_link(&self->op);
        self->op.unnotified = true;
        self->op.worker->n_unnotified++;
        self->op.self_reference = true;
        Py_INCREF(self);
        if (psb_op_receives(&self->op))
            request_drop_receive(self);
        Py_DECREF(self);
        /* the reference that stands behind self_reference remains until the
         * operation has completed */
    } else { /* no memory: leak the buffers, which are still in use */
        PyErr_Clear();
        psb_op_unlink(op);
        op->worker->api->request_free(op->core);
        op->core = NULL;
        psb_buffers_init(&op->buffers);
    }
    psb_raised_restore(raised);
}

/* ---- completion ---- */

void psb_request_call(psb_request_t *self, PyObject *callback)
{
    psb_guard_call(callback, (PyObject *)self);
}

/* Runs the call-backs in the list, and drops the reference to the list. */
static void request_run_callbacks(psb_request_t *self, PyObject *callbacks)
{
    for (Py_ssize_t i = 0; callbacks && i < PyList_GET_SIZE(callbacks); i++)
        psb_request_call(self, PyList_GET_ITEM(callbacks, i));
    Py_XDECREF(callbacks);
}

/* The outcome of an operation as Python objects, before request_store() stores
 * it. */
typedef struct harvest {
    PyObject *outcome, *status;
    bool failed;
} harvest_t;

/* Makes the outcome of a completed operation. This may run Python code, during
 * which another thread may make the outcome, too. */
static harvest_t request_harvest(psb_request_t *self)
{
    psc_status_t status = psb_op_result(&self->op)->status;
    harvest_t harvest = {NULL, NULL, false};

    if (self->op.kind != PSB_EVENT)
        harvest.outcome = psb_op_value(&self->op);
    else if (!self->outcome)
        psb_raise(self->op.worker->state, self->op.origin, status, 0);
    if (PyErr_Occurred()) {
        harvest.outcome = psb_raised_instance();
        harvest.failed = true;
    }
    /* else another thread has stored the outcome and started it again */
    if (self->op.done && psb_op_receives(&self->op) &&
        (status == PSC_OK || status == PSC_ERR_TRUNCATED))
        harvest.status = psb_op_status(&self->op);
    if (PyErr_Occurred())
        PyErr_WriteUnraisable((PyObject *)self);
    return harvest;
}

/* Stores the outcome in the request; *callbacks_p becomes the list of
 * call-backs to run. Returns false if another thread has already stored an
 * outcome, or has even started the request again. */
static bool request_store(psb_request_t *self, harvest_t harvest,
                          PyObject **callbacks_p)
{
    if (self->op.finished || !self->op.done) {
        Py_XDECREF(harvest.outcome);
        Py_XDECREF(harvest.status);
        return false;
    }
    /* harvest.outcome is NULL for an event whose outcome was set by
     * psb_request_complete() */
    if (harvest.outcome) {
        self->outcome = harvest.outcome;
        self->op.failed = harvest.failed;
    }
    *callbacks_p = *psb_request_callbacks(self);
    self->op.finished = true;
    *psb_request_status(self) = harvest.status;
    return true;
}

/* Returns true if the message of a completed receive may still have to go back
 * to the queue of arrived messages. */
static bool request_keeps_memory(const psb_request_t *self)
{
    psc_status_t status = psb_op_result(&self->op)->status;

    return psb_op_receives(&self->op) && !self->op.seen &&
           (status == PSC_OK || status == PSC_ERR_TRUNCATED);
}

void psb_request_mark_seen(psb_request_t *self)
{
    self->op.seen = true;
    if (self->op.finished && !self->op.persistent)
        psb_buffers_release(&self->op.buffers);
}

static void request_finish(psb_request_t *self)
{
    PyObject *callbacks;

    if (self->op.giving_back)
        psb_op_return(&self->op);
    if (!request_store(self, request_harvest(self), &callbacks))
        return;
    psb_op_unlink(&self->op);
    psb_op_free_core(&self->op);
    if (!request_keeps_memory(self)) {
        if (!self->op.persistent)
            psb_buffers_release(&self->op.buffers);
        psb_op_drop_memory(&self->op);
    }
    request_end(self);
    request_run_callbacks(self, callbacks); /* may start the request again */
}

bool psb_request_advance(psb_request_t *self)
{
    bool finished;

    if (self->op.finished)
        return true;
    if (!psb_op_advance(&self->op))
        return false;
    Py_INCREF(self);
    request_finish(self);
    finished = self->op.finished;
    Py_DECREF(self);
    return finished;
}

void psb_request_abandon(psb_request_t *self, psc_status_t status)
{
    psb_op_abandon(&self->op, status);
    psb_request_advance(self);
}

bool psb_request_complete(psb_request_t *self, PyObject *value, PyObject *error,
                          psc_status_t status)
{
    if (self->op.done || self->outcome || self->op.cancelled)
        return false;
    self->outcome = Py_XNewRef(error ? error : value);
    self->op.failed = error != NULL;
    self->op.cancelled = status == PSC_ERR_CANCELLED;
    if (self->op.worker->core)
        self->op.worker->api->event_complete(self->op.core, status);
    else
        /* the core's worker has ended, so it cannot report the completion */
        psb_request_abandon(self, status);
    return true;
}

bool psb_request_withdraw(psb_request_t *self)
{
    psb_raised_t raised = psb_raised_take();
    bool gone = psb_op_withdraw(&self->op);

    if (gone)
        psb_request_advance(self);
    psb_raised_restore(raised);
    return gone;
}

PyObject *psb_request_result(psb_request_t *self)
{
    if (PSB_UNLIKELY(!self->op.finished))
        return PyErr_Format(PyExc_RuntimeError,
                            "this request was started again before its result "
                            "was taken");
    if (!self->op.seen)
        psb_request_mark_seen(self);
    if (!self->op.failed)
        return Py_NewRef(self->outcome);
    /* The same exception may be raised several times; the traceback of an
     * earlier time is useless and would grow. */
    PyException_SetTraceback(self->outcome, Py_None);
    PyErr_SetObject((PyObject *)Py_TYPE(self->outcome), self->outcome);
    return NULL;
}
