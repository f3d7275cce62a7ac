/* The type Request: a posted operation, as a program sees it. */
#include "request.h"

#include <structmember.h>

static PyObject *request_wait_until(psb_request_t *self,
                                    const psb_signature_t *signature,
                                    PyObject *(*finish)(psb_request_t *),
                                    PyObject *const *args, Py_ssize_t n_args,
                                    PyObject *kwnames)
{
    int64_t deadline = PSC_FOREVER;
    PyObject *given[1];

    if (psb_args_parse(signature, args, n_args, kwnames, given) < 0 ||
        psb_arg_deadline(given[0], &deadline) < 0)
        return NULL;
    switch (psb_request_wait(self, deadline)) {
    case PSB_DONE:
        return finish(self);
    case PSB_TIMEOUT:
        return psb_raise_timeout(&self->op, given[0], (PyObject *)self);
    default:
        return NULL;
    }
}

/* Defines the method `name`, which waits for the request until a deadline and
 * returns what `finish` returns. */
#define REQUEST_WAIT(name, finish)                                             \
    static PyObject *request_##name(psb_request_t *self,                       \
                                    PyObject *const *args, Py_ssize_t n_args,  \
                                    PyObject *kwnames)                         \
    {                                                                          \
        static const psb_signature_t signature = {#name, 0, 1, {"timeout"}};   \
                                                                               \
        return request_wait_until(self, &signature, finish, args, n_args,      \
                                  kwnames);                                    \
    }

REQUEST_WAIT(wait, psb_request_result)
REQUEST_WAIT(result, psb_request_result)
REQUEST_WAIT(exception, psb_request_error)

static PyObject *request_test(psb_request_t *self, PyObject *unused)
{
    psb_worker_t *worker = self->op.worker;

    if (psb_request_advance(self))
        return psb_request_done(self, unused);
    if (psb_worker_enter(worker, self->op.origin) < 0)
        return NULL;
    worker->api->progress(worker->core, PSC_FLAG_TRY);
    psb_worker_drain(worker);
    return psb_request_done(self, unused);
}

static PyObject *request_refuse_pickle(psb_request_t *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyErr_Format(
        PyExc_TypeError,
        "a Request stays in its process: wait for it and send its "
        "result instead");
}

/* ---- events, which the control plane completes ---- */

static PyObject *request_event_complete(psb_request_t *self, PyObject *value)
{
    return PyBool_FromLong(psb_request_complete(self, value, NULL, PSC_OK));
}

static PyObject *request_event_fail(psb_request_t *self, PyObject *error)
{
    if (!PyExceptionInstance_Check(error))
        return PyErr_Format(PyExc_TypeError, "an exception instance is needed");
    return PyBool_FromLong(psb_request_complete(self, NULL, error, PSC_OK));
}

static PyObject *request_get_status(psb_request_t *self, void *closure)
{
    PyObject *status = self->op.finished ? *psb_request_status(self) : NULL;

    (void)closure;
    if (!status)
        Py_RETURN_NONE;
    Py_INCREF(status);
    psb_request_mark_seen(self);
    return status;
}

/* The getter of _asyncio_future_blocking. asyncio reads this attribute before
 * it makes a task of an awaitable. */
static PyObject *request_get_blocking(psb_request_t *self, void *closure)
{
    (void)closure;
    self->op.awaitable = true;
    Py_RETURN_NONE;
}

static PyObject *request_get_finished(psb_request_t *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(self->op.finished);
}

static PyObject *request_get_watched(psb_request_t *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(psb_request_watched(self));
}

static PyObject *request_repr(psb_request_t *self)
{
    const char *state = !self->op.finished ? "in flight"
                        : self->op.failed  ? "failed"
                                           : "done";
    PyObject *operation = psb_op_operation(&self->op), *text;

    if (!operation)
        return NULL;
    text = PyUnicode_FromFormat("<Request: %U, %s>", operation, state);
    Py_DECREF(operation);
    return text;
}

static PyMethodDef request_methods[] = {
    {"wait", PSB_FUNCTION(request_wait), PSB_FAST,
     "wait($self, timeout=None)\n--\n\n"
     "Block until the request completes; returns the result of the blocking\n"
     "call, or raises its exception. After a Timeout (seconds) the request\n"
     "is still in flight. May be called repeatedly."},
    {"result", PSB_FUNCTION(request_result), PSB_FAST,
     "result($self, timeout=None)\n--\n\n"
     "The same as wait()."},
    {"test", PSB_FUNCTION(request_test), METH_NOARGS,
     "test($self)\n--\n\n"
     "Make progress once; returns whether the request has completed."},
    {"cancel", PSB_FUNCTION(psb_request_cancel), METH_NOARGS,
     "cancel($self)\n--\n\n"
     "Withdraw the request. Returns False if it has completed already, or is\n"
     "in flight and cannot be withdrawn any more, or if the peer may be\n"
     "writing into the buffer (PSP_TUPLEQ=1 over a fabric that puts messages\n"
     "there): then it is asked, and wait() raises Cancelled soon."},
    {"done", PSB_FUNCTION(psb_request_done), METH_NOARGS,
     "done($self)\n--\n\n"
     "Returns whether the request has completed, without making progress."},
    {"cancelled", PSB_FUNCTION(psb_request_cancelled), METH_NOARGS,
     "cancelled($self)\n--\n\n"
     "Returns whether the request was cancelled."},
    {"exception", PSB_FUNCTION(request_exception), PSB_FAST,
     "exception($self, timeout=None)\n--\n\n"
     "Block until the request completes, as wait() does; returns the\n"
     "exception that wait() would raise, or None. Raises Cancelled if the\n"
     "request was cancelled."},
    {"add_done_callback", PSB_FUNCTION(psb_request_add_done_callback), METH_O,
     "add_done_callback($self, fn, /)\n--\n\n"
     "Call fn(request) when the request completes, or at once if it has\n"
     "completed. If an event loop runs in this thread, fn runs in the loop,\n"
     "which makes progress until then. Otherwise fn runs in the thread that\n"
     "delivers the completion, and its exceptions go to sys.unraisablehook."},
    {"remove_done_callback", PSB_FUNCTION(psb_request_remove_done_callback),
     METH_O,
     "remove_done_callback($self, fn, /)\n--\n\n"
     "Remove all occurrences of fn; returns their number."},
    {"_on_done", PSB_FUNCTION(psb_request_on_done), METH_O,
     "_on_done($self, fn, /)\n--\n\n"
     "Like add_done_callback, for a function that any thread may call."},
    {"_requeue", PSB_FUNCTION(psb_request_requeue), PSB_FAST,
     "_requeue($self, anyway=False)\n--\n\n"
     "Withdraw a request that nobody waits for any more. A receive that has\n"
     "matched requeues its message, unless the program has its result;\n"
     "with `anyway` also then. Returns True if the message is still arriving\n"
     "and is requeued afterwards."},
    {"_revoke", PSB_FUNCTION(psb_request_revoke), METH_NOARGS,
     "_revoke($self)\n--\n\n"
     "Complete an event with Cancelled, also if it has completed and the\n"
     "program has not seen that. Returns False if the program has seen it."},
    {"_complete", PSB_FUNCTION(request_event_complete), METH_O,
     "_complete($self, value, /)\n--\n\n"
     "Complete an event with a value. Returns False if it has completed\n"
     "already."},
    {"_fail", PSB_FUNCTION(request_event_fail), METH_O,
     "_fail($self, error, /)\n--\n\n"
     "Complete an event with an exception. Returns False if it has completed\n"
     "already."},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS,
     "Request[T]: a Request whose wait() returns a T, for type checkers."},
    {"__reduce_ex__", PSB_FUNCTION(request_refuse_pickle), METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef request_getset[] = {
    {"status", (getter)request_get_status, NULL,
     "The Status of a completed receive or probe, else None.", NULL},
    {"_asyncio_future_blocking", (getter)request_get_blocking, NULL, NULL,
     NULL},
    {"_finished", (getter)request_get_finished, NULL, NULL, NULL},
    {"_watched", (getter)request_get_watched, NULL,
     "Whether a callback waits for the completion.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMemberDef request_members[] = {
    {"_awaits", T_USHORT, offsetof(psb_request_t, op.awaits), 0, NULL},
    {"_worker", T_OBJECT, offsetof(psb_request_t, op.worker), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot request_slots[] = {
    {Py_tp_doc, "An operation in flight, or completed. Awaitable."},
    {Py_tp_dealloc, psb_request_dealloc},
    {Py_tp_finalize, psb_request_finalize},
    {Py_tp_traverse, psb_request_traverse},
    {Py_tp_clear, psb_request_clear},
    {Py_tp_repr, request_repr},
    {Py_am_await, psb_request_await},
    {Py_tp_methods, request_methods},
    {Py_tp_getset, request_getset},
    {Py_tp_members, request_members},
    {0, NULL}};

PyType_Spec psb_request_spec = {
    .name = "pscompy.Request",
    .basicsize = sizeof(psb_request_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = request_slots,
};
