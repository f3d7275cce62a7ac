/* Converts statuses of the core to exceptions. Functions in Python make these
 * exceptions, with the peer and the reason. */
#include "state.h"

/* ---- exceptions set aside ---- */

psb_raised_t psb_raised_take(void)
{
    psb_raised_t raised = {NULL, NULL, NULL};

#if PY_VERSION_HEX >= 0x030C0000
    raised.value = PyErr_GetRaisedException();
#else
    PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);
    PyErr_NormalizeException(&raised.type, &raised.value, &raised.traceback);
#endif
    return raised;
}

void psb_raised_restore(psb_raised_t raised)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(raised.value);
#else
    PyErr_Restore(raised.type, raised.value, raised.traceback);
#endif
}

PyObject *psb_raised_instance(void)
{
    psb_raised_t raised = psb_raised_take();

    Py_XDECREF(raised.type);
    Py_XDECREF(raised.traceback);
    return raised.value;
}

/* ---- statuses ---- */

static PyObject *exception_from_status(psb_state_t *state, int status,
                                       uint64_t nbytes)
{
    PyObject *make =
        psb_import_once(&state->from_status, "pscompy.errors", "from_status");
    PyObject *args, *kwargs = NULL, *exception = NULL;

    if (!make)
        return NULL;
    args = Py_BuildValue("(is)", status, "the operation failed");
    if (status == PSC_ERR_TRUNCATED || status == PSC_ERR_NO_MEMORY)
        kwargs = Py_BuildValue("{sK}", "nbytes", (unsigned long long)nbytes);
    if (args && !PyErr_Occurred())
        exception = PyObject_Call(make, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return exception;
}

PyObject *psb_exception(psb_state_t *state, PyObject *origin, int status,
                        uint64_t nbytes)
{
    PyObject *exception;

    if (!origin)
        return exception_from_status(state, status, nbytes);
    exception = PyObject_CallMethod(origin, "_exception", "iK", status,
                                    (unsigned long long)nbytes);
    if (exception && !PyExceptionInstance_Check(exception)) {
        PyErr_Format(PyExc_TypeError, "_exception() returned a %.100s",
                     Py_TYPE(exception)->tp_name);
        Py_CLEAR(exception);
    }
    return exception;
}

static PyObject *exception_raise(PyObject *exception)
{
    if (exception)
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_XDECREF(exception);
    return NULL;
}

PyObject *psb_raise(psb_state_t *state, PyObject *origin, int status,
                    uint64_t nbytes)
{
    return exception_raise(psb_exception(state, origin, status, nbytes));
}

PyObject *psb_raise_bounds(psb_state_t *state, PyObject *origin,
                           const psb_bounds_t *bounds)
{
    PyObject *make =
        psb_import_once(&state->from_status, "pscompy.errors", "from_status");
    PyObject *peer = PyObject_GetAttrString(origin, "peer");
    PyObject *args, *kwargs, *exception = NULL;

    if (!peer) { /* a World has many peers, and no attribute `peer` */
        PyErr_Clear();
        peer = Py_None;
        Py_INCREF(peer);
    }
    args = Py_BuildValue("(iO)", PSC_ERR_BOUNDS, origin);
    kwargs = Py_BuildValue("{sOsKsKsK}", "peer", peer, "offset",
                           (unsigned long long)bounds->offset, "nbytes",
                           (unsigned long long)bounds->nbytes, "size",
                           (unsigned long long)bounds->size);
    if (make && args && kwargs)
        exception = PyObject_Call(make, args, kwargs);
    Py_DECREF(peer);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return exception_raise(exception);
}

PyObject *psb_default_exception(psb_state_t *state, PyObject *const *args,
                                Py_ssize_t n_args)
{
    uint64_t nbytes = 0;
    long status;

    if (n_args != 2)
        return PyErr_Format(PyExc_TypeError,
                            "_exception() takes a status and a length");
    status = PyLong_AsLong(args[0]);
    if ((status == -1 && PyErr_Occurred()) ||
        psb_arg_u64(args[1], "nbytes", UINT64_MAX, &nbytes) < 0)
        return NULL;
    return exception_from_status(state, (int)status, nbytes);
}
