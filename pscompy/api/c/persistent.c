/* The type PersistentRequest: an operation that is described once and started
 * many times. A start neither creates an object nor looks up buffer, peer and
 * tag again. */
#include "connection.h"
#include "request.h"

typedef struct psb_persistent {
    psb_request_t request;
    psb_connection_t *connection; /* a reference, or NULL */
    /* Of a collective: its communicator, and its functions (group.c), which
     * hold its buffers; references, or NULL. And what the core is to do. */
    psb_communicator_t *communicator;
    PyObject *functions;
    psc_coll_args_t collective;
    /* a thread is inside start(), which has not begun the operation yet */
    bool starting;
} psb_persistent_t;

PyObject *psb_call_init(psb_call_t *call)
{
    PyTypeObject *type = call->op.worker->state->persistent_type;
    psb_persistent_t *self;

    if (!call->buf)
        return PyErr_Format(PyExc_TypeError,
                            "a persistent receive needs a buffer: it is used "
                            "again by every start");
    if (psb_call_take(call) < 0)
        return NULL;
    self = (psb_persistent_t *)psb_request_idle(type, &call->op);
    if (self)
        self->connection =
            (psb_connection_t *)Py_XNewRef((PyObject *)call->connection);
    psb_op_clear(&call->op);
    return (PyObject *)self;
}

PyObject *psb_collective_init(psb_call_t *call)
{
    psb_worker_t *worker = call->op.worker;
    PyObject *functions = call->op.memory;
    psc_status_t status;
    psb_persistent_t *self;

    call->op.memory = NULL;
    self = (psb_persistent_t *)psb_request_idle(worker->state->persistent_type,
                                                &call->op);
    if (!self) {
        Py_DECREF(functions);
        return NULL;
    }
    self->functions = functions;
    self->communicator = (psb_communicator_t *)Py_NewRef(call->op.origin);
    self->collective = *call->collective;
    status = worker->api->coll_init(self->communicator->group, call->collective,
                                    &self->collective.persistent);
    if (status == PSC_OK)
        return (PyObject *)self;
    psb_raise(worker->state, call->op.origin, status, 0);
    Py_DECREF(self);
    return NULL;
}

/* Fills the call of a start. psb_call_enter() sets its `conn` and may run
 * Python code, so each thread that is inside start() has a call of its own. */
static void persistent_call(psb_persistent_t *self, psb_call_t *call)
{
    const psb_op_t *op = &self->request.op;

    psb_call_begin(call, op->kind);
    call->op.worker = op->worker;
    call->op.origin = op->origin;
    call->connection = self->connection;
    call->communicator = self->communicator;
    call->collective = &self->collective;
    call->post = true;
}

/* Prepares the start of a collective: has its operand read, which may run
 * Python code. */
static int persistent_prepare(psb_persistent_t *self, psb_call_t *call)
{
    psb_op_t *op = &self->request.op;

    if (!self->communicator)
        return 0;
    if (psb_group_read(self->functions) < 0)
        return -1;
    if (self->communicator->closed || !self->communicator->group) {
        psb_raise(op->worker->state, op->origin, PSC_ERR_CLOSED, 0);
        return -1;
    }
    call->op.memory = Py_NewRef(self->functions);
    return 0;
}

static PyObject *persistent_start(psb_persistent_t *self, PyObject *unused)
{
    psb_call_t call;
    int started = -1;

    (void)unused;
    persistent_call(self, &call);
    if (psb_call_enter(&call) < 0)
        return NULL;
    if (!psb_request_advance(&self->request))
        return PyErr_Format(PyExc_RuntimeError,
                            "this request is in flight: wait for it before the "
                            "next start");
    if (self->starting)
        return PyErr_Format(PyExc_RuntimeError,
                            "another thread starts this request");
    self->starting = true;
    if (persistent_prepare(self, &call) == 0)
        started = psb_request_restart(&self->request, &call);
    self->starting = false;
    psb_op_drop_memory(&call.op);
    return started < 0 ? NULL : Py_NewRef(Py_None);
}

static int persistent_traverse(psb_persistent_t *self, visitproc visit,
                               void *arg)
{
    Py_VISIT(self->connection);
    Py_VISIT(self->communicator);
    Py_VISIT(self->functions);
    return psb_request_traverse((PyObject *)self, visit, arg);
}

static int persistent_clear(psb_persistent_t *self)
{
    Py_CLEAR(self->connection);
    Py_CLEAR(self->communicator);
    Py_CLEAR(self->functions);
    return psb_request_clear((PyObject *)self);
}

static void persistent_dealloc(psb_persistent_t *self)
{
    if (psb_request_survives(&self->request))
        return;
    PyObject_GC_UnTrack(self);
    if (self->collective.persistent)
        self->request.op.worker->api->coll_free(self->collective.persistent);
    Py_CLEAR(self->connection);
    Py_CLEAR(self->communicator);
    Py_CLEAR(self->functions);
    psb_request_dealloc((PyObject *)self);
}

static PyMethodDef persistent_methods[] = {
    {"start", PSB_FUNCTION(persistent_start), METH_NOARGS,
     "start($self)\n--\n\n"
     "Begin the operation. wait(), test() and the other methods refer to the\n"
     "latest start. Raises RuntimeError while the operation is in flight."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot persistent_slots[] = {
    {Py_tp_doc,
     "An operation that is described once and started many times, "
     "from send_init(), recv_init() and the collectives' calls _init."},
    {Py_tp_dealloc, persistent_dealloc},
    {Py_tp_traverse, persistent_traverse},
    {Py_tp_clear, persistent_clear},
    {Py_tp_methods, persistent_methods},
    {0, NULL}};

PyType_Spec psb_persistent_spec = {
    .name = "pscompy.PersistentRequest",
    .basicsize = sizeof(psb_persistent_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = persistent_slots,
};
