/* The methods by which a Request reports its completion, named as those of
 * futures. */
#include "request.h"

PyObject *psb_request_done(psb_request_t *self, PyObject *unused)
{
    (void)unused;
    if (!psb_request_advance(self))
        Py_RETURN_FALSE;
    psb_request_mark_seen(self);
    Py_RETURN_TRUE;
}

/* Returns whether the request was cancelled (1 or 0), or -1 with an
 * exception. */
static int request_was_cancelled(psb_request_t *self)
{
    psb_state_t *state = self->op.worker->state;
    PyObject *type;

    if (!psb_request_advance(self) || !self->op.failed)
        return false;
    type =
        psb_import_once(&state->cancelled_type, "pscompy.errors", "Cancelled");
    return type ? PyObject_IsInstance(self->outcome, type) : -1;
}

PyObject *psb_request_cancelled(psb_request_t *self, PyObject *unused)
{
    int cancelled = request_was_cancelled(self);

    (void)unused;
    return cancelled < 0 ? NULL : PyBool_FromLong(cancelled);
}

PyObject *psb_request_error(psb_request_t *self)
{
    int cancelled = request_was_cancelled(self);
    PyObject *error = self->op.failed ? self->outcome : Py_None;

    if (cancelled < 0)
        return NULL;
    if (cancelled)
        return psb_request_result(self);
    psb_request_mark_seen(self);
    return Py_NewRef(error);
}

/* ---- call-backs ---- */

PyObject *psb_request_on_done(psb_request_t *self, PyObject *fn)
{
    if (psb_request_advance(self)) {
        psb_request_call(self, fn);
        Py_RETURN_NONE;
    }
    if (!*psb_request_callbacks(self)) {
        PyObject *list = PyList_New(0);

        if (!list)
            return NULL;
        /* The request may have finished meanwhile, because making the list may
         * run Python code. */
        if (self->op.finished) {
            Py_DECREF(list);
            return psb_request_on_done(self, fn);
        }
        *psb_request_callbacks(self) = list;
    }
    if (PyList_Append(*psb_request_callbacks(self), fn) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Returns a call-back that runs fn in the event loop of this thread, or returns
 * fn if the thread has no event loop. asyncio is not imported for this, because
 * the import takes long, and because there is no loop if asyncio was not
 * imported. */
static PyObject *request_callback(psb_request_t *self, PyObject *fn)
{
    psb_state_t *state = self->op.worker->state;
    PyObject *name = PyUnicode_InternFromString("asyncio");
    PyObject *asyncio = name ? PyImport_GetModule(name) : NULL;
    PyObject *wrap;

    Py_XDECREF(name);
    if (!asyncio) {
        Py_INCREF(fn);
        return PyErr_Occurred() ? NULL : fn;
    }
    Py_DECREF(asyncio);
    wrap = psb_import_once(&state->loop_callback, "pscompy.api.aio",
                           "loop_callback");
    return wrap ? PyObject_CallFunctionObjArgs(wrap, self, fn, NULL) : NULL;
}

PyObject *psb_request_add_done_callback(psb_request_t *self, PyObject *fn)
{
    PyObject *callback, *added;

    if (!PyCallable_Check(fn))
        return PyErr_Format(PyExc_TypeError, "the call-back must be callable");
    if (psb_request_advance(self)) {
        self->op.told = true;
        return psb_request_on_done(self, fn);
    }
    callback = request_callback(self, fn);
    if (!callback)
        return NULL;
    self->op.told = true;
    added = psb_request_on_done(self, callback);
    Py_DECREF(callback);
    return added;
}

PyObject *psb_request_remove_done_callback(psb_request_t *self, PyObject *fn)
{
    PyObject *list =
        self->op.finished ? NULL : Py_XNewRef(*psb_request_callbacks(self));
    Py_ssize_t removed = 0, i;

    for (i = list ? PyList_GET_SIZE(list) : 0; i > 0; i--) {
        int same =
            PyObject_RichCompareBool(PyList_GET_ITEM(list, i - 1), fn, Py_EQ);

        if (same < 0 || (same && PySequence_DelItem(list, i - 1) < 0)) {
            Py_DECREF(list);
            return NULL;
        }
        removed += same;
    }
    if (removed && !psb_request_watched(self)) {
        self->op.told = false;
        psb_request_unwatched(self);
    }
    Py_XDECREF(list);
    return PyLong_FromSsize_t(removed);
}
