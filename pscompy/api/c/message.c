/* The type Message: a message that a matched probe has taken off the queue of
 * arrived messages, and that is still to be received. */
#include "request.h"

#include <structmember.h>

typedef struct psb_message {
    /* op.core is a receive in state MATCHED, or NULL once the message was
     * received */
    PyObject_HEAD psb_op_t op;
    PyObject *status;
} psb_message_t;

PyObject *psb_message_new(psb_op_t *op)
{
    PyTypeObject *type = op->worker->state->message_type;
    PyObject *status = psb_op_status(op);
    psb_message_t *self;

    if (!status)
        return NULL;
    self = (psb_message_t *)type->tp_alloc(type, 0);
    if (!self) {
        Py_DECREF(status);
        return NULL;
    }
    psb_op_unlink(op);
    self->op = *op;
    self->op.waiters = 0;
    self->op.in_request = false;
    psb_buffers_init(&self->op.buffers);
    self->status = status;
    op->core = NULL;
    Py_INCREF(self->op.worker);
    Py_XINCREF(self->op.origin);
    psb_op_link(&self->op);
    return (PyObject *)self;
}

/* Receives a message that a probe has matched. `buf` is the buffer of a
 * PSB_RECV_INTO, or NULL. */
static PyObject *message_receive(psb_op_t *matched, psb_kind_t kind,
                                 PyObject *buf)
{
    psb_call_t call;
    psb_op_t *op = &call.op;
    PyObject *value;

    psb_call_begin(&call, kind);
    op->worker = matched->worker;
    op->origin = matched->origin;
    op->context = matched->context;
    call.buf = buf;
    if (psb_call_take(&call) < 0)
        return NULL;
    op->core = matched->core;
    psb_op_unlink(matched);
    matched->core = NULL;
    value = psb_op_block(op, PSC_FOREVER, NULL) ? psb_op_value(op) : NULL;
    psb_op_clear(op);
    return value;
}

/* Called before the message is received. Returns -1 with an exception if it
 * cannot be received any more. */
static int message_enter(const psb_message_t *self)
{
    psb_worker_t *worker = self->op.worker;

    if (worker->status != PSC_OK) {
        psb_raise(worker->state, self->op.origin, worker->status, 0);
        return -1;
    }
    if (!self->op.core) {
        PyErr_SetString(PyExc_ValueError, "this message was received already");
        return -1;
    }
    return 0;
}

static PyObject *message_recv(psb_message_t *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {"recv", 0, 1, {"buf"}};
    PyObject *given[1];

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        message_enter(self) < 0)
        return NULL;
    return message_receive(&self->op, PSB_RECV_INTO,
                           given[0] == Py_None ? NULL : given[0]);
}

static PyObject *message_recv_view(psb_message_t *self, PyObject *unused)
{
    (void)unused;
    return message_enter(self) < 0
               ? NULL
               : message_receive(&self->op, PSB_RECV_VIEW, NULL);
}

static PyObject *message_repr(psb_message_t *self)
{
    return PyUnicode_FromFormat("<Message: %R%s>", self->status,
                                self->op.core ? "" : ", received");
}

static int message_traverse(psb_message_t *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->op.worker);
    Py_VISIT(self->op.origin);
    Py_VISIT(self->status);
    return 0;
}

static void message_dealloc(psb_message_t *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    psb_op_clear(&self->op);
    Py_CLEAR(self->op.origin);
    Py_CLEAR(self->op.worker);
    Py_CLEAR(self->status);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef message_methods[] = {
    {"recv", PSB_FUNCTION(message_recv), PSB_FAST,
     "recv($self, buf=None)\n--\n\n"
     "Receive the message, once: into buf, returning its Status, or without\n"
     "buf as a new bytearray."},
    {"_recv_view", PSB_FUNCTION(message_recv_view), METH_NOARGS,
     "_recv_view($self)\n--\n\n"
     "Receive the message, once, as Connection.recv_view does."},
    {NULL, NULL, 0, NULL}};

static PyMemberDef message_members[] = {{"status", T_OBJECT,
                                         offsetof(psb_message_t, status),
                                         READONLY, "Its Status."},
                                        {NULL, 0, 0, 0, NULL}};

static PyType_Slot message_slots[] = {
    {Py_tp_doc, "A message that mprobe has taken; if it is dropped instead of\n"
                "received it goes back to its place."},
    {Py_tp_dealloc, message_dealloc},
    {Py_tp_traverse, message_traverse},
    {Py_tp_repr, message_repr},
    {Py_tp_methods, message_methods},
    {Py_tp_members, message_members},
    {0, NULL}};

PyType_Spec psb_message_spec = {
    .name = "pscompy.Message",
    .basicsize = sizeof(psb_message_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = message_slots,
};
