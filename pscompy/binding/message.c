/* The type Message: a message that a matched probe has taken off the queue. */
#include "binding.h"

typedef struct hot_message {
    PyObject_HEAD
    hot_op_t op; /* its core request is MATCHED; NULL once received */
    PyObject *status;
} hot_message_t;

PyObject *hot_message_new(hot_op_t *op)
{
    PyTypeObject *type = op->worker->state->message_type;
    PyObject *status = hot_op_status(op);
    hot_message_t *self;

    if (!status)
        return NULL;
    self = (hot_message_t *)type->tp_alloc(type, 0);
    if (!self) {
        Py_DECREF(status);
        return NULL;
    }
    hot_op_unlink(op);
    self->op = *op;
    self->op.waiters = 0;
    self->op.in_request = false;
    hot_buffers_init(&self->op.buffers);
    self->status = status;
    op->core = NULL;
    Py_INCREF(self->op.worker);
    Py_XINCREF(self->op.origin);
    hot_op_link(&self->op);
    return (PyObject *)self;
}

static PyObject *message_recv(hot_message_t *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames)
{
    static const hot_signature_t signature = {"recv", 0, 1, {"buf"}};
    hot_worker_t *worker = self->op.worker;
    PyObject *given[1];

    if (hot_args_parse(&signature, args, n_args, kwnames, given) < 0)
        return NULL;
    if (worker->status != PSC_OK)
        return hot_raise(worker->state, self->op.origin, worker->status, 0);
    if (!self->op.core) {
        PyErr_SetString(PyExc_ValueError, "this message was received already");
        return NULL;
    }
    return hot_call_recv_matched(&self->op, given[0]);
}

static PyObject *message_repr(hot_message_t *self)
{
    return PyUnicode_FromFormat("<Message: %R%s>", self->status,
                                self->op.core ? "" : ", received");
}

static PyObject *message_get_status(hot_message_t *self, void *closure)
{
    (void)closure;
    Py_INCREF(self->status);
    return self->status;
}

static int message_traverse(hot_message_t *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->op.worker);
    Py_VISIT(self->op.origin);
    Py_VISIT(self->status);
    return 0;
}

static void message_dealloc(hot_message_t *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    hot_op_clear(&self->op);
    Py_CLEAR(self->op.origin);
    Py_CLEAR(self->op.worker);
    Py_CLEAR(self->status);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef message_methods[] = {
    {"recv", HOT_FUNCTION(message_recv), HOT_FAST,
     "recv($self, buf=None)\n--\n\n"
     "Receive it, once: into buf, giving its Status, or as a new bytearray."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef message_getset[] = {
    {"status", (getter)message_get_status, NULL, "Its Status.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot message_slots[] = {
    {Py_tp_doc, "A message that mprobe has taken; if it is dropped instead of\n"
                "received it goes back to its place."},
    {Py_tp_dealloc, message_dealloc},
    {Py_tp_traverse, message_traverse},
    {Py_tp_repr, message_repr},
    {Py_tp_methods, message_methods},
    {Py_tp_getset, message_getset},
    {0, NULL}};

PyType_Spec hot_message_spec = {
    .name = "pscompy.Message",
    .basicsize = sizeof(hot_message_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = message_slots,
};
