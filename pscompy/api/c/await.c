/* Awaits a request. An event loop takes longer to sleep and to wake up than a
 * near peer takes to answer. So the await does not suspend if the request has
 * completed, or completes within a moment of polling; for other requests see
 * pscompy.api.aio.
 *
 * Polling delays the loop's other tasks. It is therefore short, and skipped for
 * a while after it found nothing. A task that awaits one completed request
 * after the other yields to the loop at least every AWAIT_TURN_NS. */
#include "request.h"

#define AWAIT_LINGER_NS 20000
#define AWAIT_TURN_NS 500000
/* upper bound of psb_patience_t.backoff, the number of awaits in a row that
 * skip polling */
#define AWAIT_SKIP_MAX 63u

/* ---- completed requests ---- */

/* An iterator that returns the result of a completed request. If `turn` is set,
 * its first step gives None, with which a task yields to asyncio's loop. */
typedef struct psb_ended {
    PyObject_HEAD psb_request_t *request;
    bool turn;
} psb_ended_t;

static PySendResult ended_send(psb_ended_t *self, PyObject *unused,
                               PyObject **result_p)
{
    (void)unused;
    if (self->turn) {
        self->turn = false;
        *result_p = Py_NewRef(Py_None);
        return PYGEN_NEXT;
    }
    *result_p = psb_request_result(self->request);
    return *result_p ? PYGEN_RETURN : PYGEN_ERROR;
}

/* Makes one step of the iterator, for code that calls next() instead of
 * await. */
static PyObject *ended_next(psb_ended_t *self)
{
    PyObject *value, *stop = NULL;
    PySendResult step = ended_send(self, NULL, &value);

    if (step == PYGEN_NEXT)
        return value;
    if (step == PYGEN_RETURN)
        stop = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (stop)
        PyErr_SetObject(PyExc_StopIteration, stop);
    Py_XDECREF(stop);
    Py_XDECREF(value);
    return NULL;
}

/* Called when the await ends without taking the result: gives a received
 * message back to the queue, unless another await may take the result. */
static void ended_requeue(psb_ended_t *self)
{
    PyObject *request = (PyObject *)self->request, *later;

    if (self->turn || self->request->op.awaits > 0)
        return;
    later = PyObject_CallMethod(request, "_requeue", NULL);
    if (!later)
        PyErr_WriteUnraisable(request);
    Py_XDECREF(later);
}

static PyObject *ended_throw(psb_ended_t *self, PyObject *const *args,
                             Py_ssize_t n_args)
{
    if (n_args < 1 || n_args > 3)
        return PyErr_Format(PyExc_TypeError, "throw() takes an exception");
    ended_requeue(self);
    if (PyExceptionInstance_Check(args[0]))
        PyErr_SetObject((PyObject *)Py_TYPE(args[0]), args[0]);
    else
        PyErr_SetObject(args[0], n_args > 1 ? args[1] : Py_None);
    return NULL;
}

static PyObject *ended_close(psb_ended_t *self, PyObject *unused)
{
    (void)unused;
    ended_requeue(self);
    Py_RETURN_NONE;
}

static PyMethodDef ended_methods[] = {
    {"throw", PSB_FUNCTION(ended_throw), METH_FASTCALL, NULL},
    {"close", PSB_FUNCTION(ended_close), METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static int ended_traverse(psb_ended_t *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->request);
    return 0;
}

static void ended_dealloc(psb_ended_t *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->request);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot ended_slots[] = {{Py_tp_dealloc, ended_dealloc},
                                    {Py_tp_traverse, ended_traverse},
                                    {Py_tp_iter, PyObject_SelfIter},
                                    {Py_tp_iternext, ended_next},
                                    {Py_tp_methods, ended_methods},
                                    {Py_am_send, ended_send},
                                    {0, NULL}};

PyType_Spec psb_ended_spec = {
    .name = "pscompy.api.c._binding.Ended",
    .basicsize = sizeof(psb_ended_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = ended_slots,
};

static PyObject *await_nothing(psb_request_t *request, bool turn)
{
    PyTypeObject *type = request->op.worker->state->ended_type;
    psb_ended_t *self = (psb_ended_t *)type->tp_alloc(type, 0);

    if (!self)
        return NULL;
    Py_INCREF(request);
    self->request = request;
    self->turn = turn;
    return (PyObject *)self;
}

/* ---- polling ---- */

static void await_poll(psb_request_t *request)
{
    psb_worker_t *worker = request->op.worker;
    psc_request_t *held = psb_op_hold(&request->op);

    worker->n_inside++;
    Py_BEGIN_ALLOW_THREADS worker->api->linger(worker->core, held,
                                               AWAIT_LINGER_NS);
    Py_END_ALLOW_THREADS worker->n_inside--;
    psb_worker_drain(worker);
    psb_op_let_go(&request->op, held);
}

static bool await_linger(psb_request_t *request)
{
    psb_patience_t *patience = &request->op.worker->patience;

    if (patience->skip > 0) {
        patience->skip--;
        return false;
    }
    await_poll(request);
    if (psb_request_advance(request)) {
        patience->backoff = 0;
        return true;
    }
    patience->backoff = 2 * patience->backoff + 1;
    if (patience->backoff > AWAIT_SKIP_MAX)
        patience->backoff = AWAIT_SKIP_MAX;
    patience->skip = patience->backoff;
    return false;
}

/* ---- await ---- */

/* Returns true if the task must yield to the loop now, because during the last
 * AWAIT_TURN_NS no await has suspended its task and no task has yielded. */
static bool await_turn(psb_patience_t *patience)
{
    int64_t now = psc_clock_now();
    bool due = patience->turn && now - patience->turn > AWAIT_TURN_NS;

    if (due || !patience->turn)
        patience->turn = now;
    return due;
}

static PyObject *await_suspend(psb_request_t *self)
{
    psb_worker_t *worker = self->op.worker;
    PyObject *function = psb_import_once(&worker->state->await_request,
                                         "pscompy.api.aio", "await_request");

    worker->patience.turn = 0;
    return function ? PyObject_CallOneArg(function, (PyObject *)self) : NULL;
}

PyObject *psb_request_await(psb_request_t *self)
{
    psb_worker_t *worker = self->op.worker;
    bool turn = await_turn(&worker->patience);

    if (psb_request_advance(self))
        return await_nothing(self, turn);
    if (psb_worker_enter(worker, self->op.origin) < 0)
        return NULL;
    if (psb_request_advance(self) || (!turn && await_linger(self)))
        return await_nothing(self, turn);
    return await_suspend(self);
}
