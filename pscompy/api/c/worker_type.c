/* The type Worker: a worker of the core, as Python sees it. */
#include "memory.h"
#include "connection.h"
#include "request.h"

#include <structmember.h>

static PyObject *worker_progress(psb_worker_t *self, PyObject *unused)
{
    unsigned events;

    (void)unused;
    if (psb_worker_enter(self, NULL) < 0)
        return NULL;
    self->n_inside++;
    Py_BEGIN_ALLOW_THREADS events = self->api->progress(self->core, 0);
    Py_END_ALLOW_THREADS self->n_inside--;
    psb_worker_drain(self);
    return PyLong_FromUnsignedLong(events);
}

static PyObject *worker_sleeper(psb_worker_t *self, PyObject *unused)
{
    (void)unused;
    if (psb_worker_enter(self, NULL) < 0)
        return NULL;
    return psb_sleeper_create(self);
}

static PyObject *worker_drain(psb_worker_t *self, PyObject *unused)
{
    (void)unused;
    psb_worker_drain(self);
    Py_RETURN_NONE;
}

static PyObject *worker_on_message(psb_worker_t *self, PyObject *const *args,
                                   Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "on_message", 2, 2, {"id", "handler"}};
    PyObject *given[2], *key, *handlers;
    psc_status_t status;
    uint64_t id = 0;
    bool remove;
    int failed = 0;

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        psb_arg_u64(given[0], "the id", PSC_TAG_MAX, &id) < 0 ||
        psb_worker_enter(self, NULL) < 0)
        return NULL;
    remove = given[1] == Py_None;
    if (!remove && !PyCallable_Check(given[1]))
        return PyErr_Format(PyExc_TypeError, "the handler must be callable");
    key = PyLong_FromUnsignedLongLong(id);
    if (!key)
        return NULL;
    handlers = psb_worker_held(self->handlers);
    if (handlers && remove)
        failed = PyDict_Contains(handlers, key) > 0 &&
                 PyDict_DelItem(handlers, key) < 0;
    else if (handlers)
        failed = PyDict_SetItem(handlers, key, given[1]) < 0;
    Py_XDECREF(handlers);
    Py_DECREF(key);
    if (failed)
        return NULL;
    status = self->api->am_handler(self->core, (uint32_t)id, NULL,
                                   remove ? NULL : self);
    if (status != PSC_OK)
        return psb_raise(self->state, NULL, status, 0);
    Py_RETURN_NONE;
}

static PyObject *worker_event(psb_worker_t *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "event", 0, 3, {"request_type", "origin", "receive"}};
    PyTypeObject *base = self->state->request_type;
    PyObject *given[3];
    psb_call_t call;

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0)
        return NULL;
    psb_call_begin(&call, PSB_EVENT);
    call.op.worker = self;
    call.post = true;
    if (given[0] && given[0] != Py_None)
        call.type = (PyTypeObject *)given[0];
    if (call.type &&
        (!PyType_Check(given[0]) || !PyType_IsSubtype(call.type, base)))
        return PyErr_Format(PyExc_TypeError, "event() takes a type of Request");
    call.op.origin = given[1] == Py_None ? NULL : given[1];
    call.op.takes = given[2] && PyObject_TypeCheck(given[2], base);
    if (call.op.takes) {
        call.op.context = ((psb_request_t *)given[2])->op.context;
        call.op.tag = ((psb_request_t *)given[2])->op.tag;
    }
    return psb_worker_enter(self, NULL) < 0 ? NULL : psb_request_post(&call);
}

static PyObject *worker_get_awaited(psb_worker_t *self, void *closure)
{
    PyObject *list = PyList_New(0);

    (void)closure;
    if (!list)
        return NULL;
    psc_list_for_each(op, &self->ops, psb_op_t, phase.flight.link) {
        PyObject *address;

        if (!op->core || !op->in_request || op->awaits == 0)
            continue;
        address = PyLong_FromVoidPtr(op->core);
        if (!address || PyList_Append(list, address) < 0)
            Py_CLEAR(list);
        Py_XDECREF(address);
        if (!list)
            return NULL;
    }
    return list;
}

/* ---- the pool ---- */

/* Converts the argument `private` to flags of block_alloc. */
static int worker_pool_flags(PyObject *object, uint32_t *flags_p)
{
    int private = object ? PyObject_IsTrue(object) : 0;

    *flags_p = private > 0 ? PSC_FLAG_PRIVATE : 0;
    return private < 0 ? -1 : 0;
}

static PyObject *worker_allocate(psb_worker_t *self, PyObject *const *args,
                                 Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "allocate", 1, 2, {"nbytes", "private"}};
    PyObject *given[2];
    uint64_t nbytes = 0;
    uint32_t flags;

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        psb_arg_u64(given[0], "the size", PY_SSIZE_T_MAX, &nbytes) < 0 ||
        worker_pool_flags(given[1], &flags) < 0 ||
        psb_worker_enter(self, NULL) < 0)
        return NULL;
    return psb_memory_alloc(self, (size_t)nbytes, flags);
}

static PyObject *worker_empty(psb_worker_t *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "empty", 2, 3, {"shape", "dtype", "private"}};
    PyObject *given[3];
    uint32_t flags;

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        worker_pool_flags(given[2], &flags) < 0 ||
        psb_worker_enter(self, NULL) < 0)
        return NULL;
    return psb_array_empty(self, given[0], given[1], flags);
}

/* ---- connections in use ---- */

static PyObject *worker_retain(psb_worker_t *self, PyObject *object)
{
    psb_connection_t *connection = (psb_connection_t *)object;
    PyObject *id, *held, *connections;

    if (!PyObject_TypeCheck(object, self->state->connection_type) ||
        !connection->core)
        return PyErr_Format(PyExc_TypeError,
                            "retain() needs a bound Connection");
    if (self->status != PSC_OK ||
        !(connections = psb_worker_held(self->connections)))
        Py_RETURN_NONE;
    id = PyLong_FromUnsignedLongLong(self->api->conn_id(connection->core));
    held = id ? PyDict_SetDefault(connections, id, object) : NULL;
    if (held)
        ((psb_connection_t *)held)->leaving = false;
    Py_XDECREF(id);
    Py_DECREF(connections);
    if (!held)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *worker_release(psb_worker_t *self, PyObject *id)
{
    PyObject *held = psb_worker_connection(self, id);
    int failed = 0;

    if (held && self->status == PSC_OK) {
        ((psb_connection_t *)held)->leaving = true;
        failed = psb_worker_let_go(self, (psb_connection_t *)held);
    }
    Py_XDECREF(held);
    if (failed || PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *worker_connection(psb_worker_t *self, PyObject *id)
{
    PyObject *held = psb_worker_connection(self, id);

    if (!held && PyErr_Occurred())
        return NULL;
    return held ? held : Py_NewRef(Py_None);
}

/* Replaces the dictionaries by weak references to those of the session. So
 * whoever has only the worker, as the control thread, does not keep the session
 * alive. */
static PyObject *worker_belong_to(psb_worker_t *self, PyObject *args)
{
    PyObject *given[3],
        **places[] = {&self->owner, &self->connections, &self->handlers};

    if (!PyArg_ParseTuple(args, "OOO:belong_to", &given[0], &given[1],
                          &given[2]))
        return NULL;
    if (!PyDict_Check(given[1]) || !PyDict_Check(given[2]))
        return PyErr_Format(PyExc_TypeError, "belong_to() needs dictionaries");
    for (size_t i = 0; i < 3; i++) {
        PyObject *reference = PyWeakref_NewRef(given[i], NULL);

        if (!reference)
            return NULL;
        Py_XSETREF(*places[i], reference);
    }
    Py_RETURN_NONE;
}

static PyObject *worker_new(PyTypeObject *type, PyObject *args,
                            PyObject *kwargs)
{
    static char *names[] = {"worker_address", NULL};
    psb_state_t *state = PyType_GetModuleState(type);
    unsigned long long address;
    psb_worker_t *self;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K:Worker", names, &address))
        return NULL;
    if (!state->api || !address)
        return PyErr_Format(PyExc_ValueError, "%s",
                            state->api ? "a null worker"
                                       : "bind() comes first");
    self = (psb_worker_t *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->state = state;
    self->module = Py_NewRef(PyType_GetModule(type));
    self->api = state->api;
    self->core = (psc_worker_t *)(uintptr_t)address;
    psc_list_init(&self->ops);
    psc_list_init(&self->left);
    psc_table_init(&self->numberings, 0x9e3779b97f4a7c15);
    self->connections = PyDict_New();
    self->handlers = PyDict_New();
    if (!self->connections || !self->handlers)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *worker_get_pending(psb_worker_t *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(
        self->status == PSC_OK &&
        (self->n_unnotified || self->api->pending(self->core)));
}

static PyObject *worker_get_address(psb_worker_t *self, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(self->core);
}

static int worker_traverse(psb_worker_t *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->module);
    Py_VISIT(self->connections);
    Py_VISIT(self->handlers);
    Py_VISIT(self->owner);
    Py_VISIT(self->status_kept);
    for (unsigned i = 0; i < self->n_rooms; i++)
        Py_VISIT(self->rooms[i]);
    return 0;
}

/* Clears the references that may form cycles, but not the module, whose state
 * requests use until they are freed. */
static int worker_clear(psb_worker_t *self)
{
    Py_CLEAR(self->connections);
    Py_CLEAR(self->handlers);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->status_kept);
    while (self->n_rooms > 0)
        Py_DECREF(self->rooms[--self->n_rooms]);
    return 0;
}

static void worker_dealloc(psb_worker_t *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    worker_clear(self);
    psb_worker_forget_numberings(self);
    Py_XDECREF(self->module);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef worker_methods[] = {
    {"progress", PSB_FUNCTION(worker_progress), METH_NOARGS,
     "progress($self)\n--\n\n"
     "Make progress once and deliver all completions; returns the number of\n"
     "events."},
    {"sleeper", PSB_FUNCTION(worker_sleeper), METH_NOARGS,
     "sleeper($self)\n--\n\n"
     "A Sleeper: a descriptor that one thread can sleep on."},
    {"drain", PSB_FUNCTION(worker_drain), METH_NOARGS,
     "drain($self)\n--\n\n"
     "Deliver completions: call the call-backs of requests and the handlers\n"
     "of active messages."},
    {"on_message", PSB_FUNCTION(worker_on_message), PSB_FAST,
     "on_message($self, id, handler)\n--\n\n"
     "Call handler(source, header, payload) for active messages that were\n"
     "sent by am_send(id, ...); None removes the handler. It runs in\n"
     "whichever thread uses the session, and its exceptions go to\n"
     "sys.unraisablehook."},
    {"allocate", PSB_FUNCTION(worker_allocate), PSB_FAST,
     "allocate($self, nbytes, private=False)\n--\n\n"
     "A writable Memory of the pool, which can be lent unless it is private."},
    {"empty", PSB_FUNCTION(worker_empty), PSB_FAST,
     "empty($self, shape, dtype, private=False)\n--\n\n"
     "A numpy array in memory of the pool; see allocate."},
    {"event", PSB_FUNCTION(worker_event), PSB_FAST,
     "event($self, request_type=None, origin=None, receive=None)\n--\n\n"
     "A Request (or a subclass of it) that _complete(value) or _fail(error)\n"
     "completes. origin._exception(status, 0) makes its Timeout and\n"
     "Cancelled, which name what the Request `receive` awaits."},
    {"retain", PSB_FUNCTION(worker_retain), METH_O,
     "retain($self, connection, /)\n--\n\n"
     "Keep the connection alive until release. Handlers of its messages get "
     "it\n"
     "as their source."},
    {"release", PSB_FUNCTION(worker_release), METH_O,
     "release($self, id, /)\n--\n\n"
     "The connection of this id is not in use any more: drop the reference\n"
     "to it once its messages have been delivered."},
    {"belong_to", PSB_FUNCTION(worker_belong_to), METH_VARARGS,
     "belong_to($self, owner, connections, handlers, /)\n--\n\n"
     "Refer to the session and its two dictionaries, of connections and of\n"
     "handlers, weakly; memory of the pool keeps the session alive."},
    {"connection", PSB_FUNCTION(worker_connection), METH_O,
     "connection($self, id, /)\n--\n\n"
     "The connection in use that has this id, or None."},
    {"close", PSB_FUNCTION(psb_worker_close), METH_O,
     "close($self, destroy, /)\n--\n\n"
     "End all use of the core's worker, call destroy(), and complete the\n"
     "operations in flight with Closed; waiting threads are woken. Returns\n"
     "the result of destroy(): True if a peer may still write to the\n"
     "buffers, which are never freed then."},
    {"forked", PSB_FUNCTION(psb_worker_forked), METH_NOARGS,
     "forked($self)\n--\n\n"
     "In the child after a fork: every later use raises, and nothing that\n"
     "the parent shares is changed."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef worker_getset[] = {
    {"pending", (getter)worker_get_pending, NULL,
     "Whether drain() may find something.", NULL},
    {"awaited", (getter)worker_get_awaited, NULL,
     "Addresses of the core's requests that asyncio tasks wait for.", NULL},
    {"address", (getter)worker_get_address, NULL,
     "Address of the core's worker, 0 after close().", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMemberDef worker_members[] = {
    {"rooms_used", T_UINT, offsetof(psb_worker_t, n_rooms_out), READONLY, NULL},
    {"rooms_kept", T_UINT, offsetof(psb_worker_t, n_rooms), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot worker_slots[] = {
    {Py_tp_doc, "Worker(worker_address)\n--\n\n"
                "The messages of one worker of the core."},
    {Py_tp_new, worker_new},
    {Py_tp_dealloc, worker_dealloc},
    {Py_tp_traverse, worker_traverse},
    {Py_tp_clear, worker_clear},
    {Py_tp_methods, worker_methods},
    {Py_tp_getset, worker_getset},
    {Py_tp_members, worker_members},
    {0, NULL}};

PyType_Spec psb_worker_spec = {
    .name = "pscompy.api.c._binding.Worker",
    .basicsize = sizeof(psb_worker_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = worker_slots,
};
