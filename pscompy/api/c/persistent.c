/* The type PersistentRequest: an operation that is described once and started
 * many times. A start neither creates an object nor looks up buffer, peer and
 * tag again. */
#include "request.h"

typedef struct psb_persistent {
    psb_request_t request;
    psb_connection_t *connection; /* a reference, or NULL */
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

/* Fills the call of a start. psb_call_enter() sets its `conn` and may run
 * Python code, so each thread that is inside start() has a call of its own. */
static void persistent_call(const psb_persistent_t *self, psb_call_t *call)
{
    const psb_op_t *op = &self->request.op;

    psb_call_begin(call, op->kind);
    call->op.worker = op->worker;
    call->op.origin = op->origin;
    call->connection = self->connection;
    call->post = true;
}

static PyObject *persistent_start(psb_persistent_t *self, PyObject *unused)
{
    psb_call_t call;
    int started;

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
    started = psb_request_restart(&self->request, &call);
    self->starting = false;
    return started < 0 ? NULL : Py_NewRef(Py_None);
}

static int persistent_traverse(psb_persistent_t *self, visitproc visit,
                               void *arg)
{
    Py_VISIT(self->connection);
    return psb_request_traverse((PyObject *)self, visit, arg);
}

static int persistent_clear(psb_persistent_t *self)
{
    Py_CLEAR(self->connection);
    return psb_request_clear((PyObject *)self);
}

static void persistent_dealloc(psb_persistent_t *self)
{
    if (psb_request_survives(&self->request))
        return;
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->connection);
    psb_request_dealloc((PyObject *)self);
}

static PyMethodDef persistent_methods[] = {
    {"start", PSB_FUNCTION(persistent_start), METH_NOARGS,
     "start($self)\n--\n\n"
     "Begin the operation. wait(), test() and the other methods refer to the\n"
     "latest start. Raises RuntimeError while the operation is in flight."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot persistent_slots[] = {
    {Py_tp_doc, "An operation that is described once and started many times, "
                "from send_init() and recv_init()."},
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
