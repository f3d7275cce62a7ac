/* Objects whose pickle is all that there is of them, without a step through
 * Python code; every other goes on in pscompy/parcel/objects.py. */
#include "hot.h"

int hot_object_bind(hot_connection_t *self, PyObject *const *args,
                    Py_ssize_t n_args)
{
    PyTypeObject *type = self->worker->state->connection_type;

    if (n_args != 3 || !PyObject_TypeCheck(args[1], type)) {
        PyErr_SetString(PyExc_TypeError,
                        "_set_objects() takes Objects, their Connection, and "
                        "whether pickle does as it is");
        return -1;
    }
    Py_INCREF(args[0]);
    Py_INCREF(args[1]);
    Py_XSETREF(self->objects, args[0]);
    Py_XSETREF(self->heads, (hot_connection_t *)args[1]);
    self->pickles = args[2] == Py_True;
    return 0;
}

/* Made at the first object. */
static int object_open(hot_connection_t *self)
{
    hot_call_t call;
    PyObject *made;

    if (self->objects)
        return 0;
    if (hot_connection_address(self, &call) < 0)
        return -1;
    made = PyObject_CallMethod((PyObject *)self, "_open_objects", NULL);
    Py_XDECREF(made);
    return made && self->objects ? 0 : -1;
}

/* A blocking call on the heads, but for its buffer. */
static void object_call(hot_connection_t *self, hot_call_t *call)
{
    *call = (hot_call_t){.deadline = PSC_FOREVER, .tag = PSC_ANY_TAG};
    hot_connection_address(self->heads, call);
}

/* ---- sending ---- */

/* Their memory is a buffer: pickle would copy it. */
static bool object_is_buffer(PyObject *object)
{
    const char *type = Py_TYPE(object)->tp_name;

    return PyBytes_CheckExact(object) || PyByteArray_CheckExact(object) ||
           PyMemoryView_Check(object) || strcmp(type, "numpy.ndarray") == 0 ||
           strcmp(type, "array.array") == 0;
}

/* Its pickle; what was left out of that is appended to `left`. */
static PyObject *object_pickle(hot_state_t *state, PyObject *object,
                               PyObject *left)
{
    PyObject *dumps = hot_import_once(&state->dumps, "pickle", "dumps");
    PyObject *args[3] = {object, NULL, NULL}, *data = NULL;

    if (!state->dumps_names)
        state->dumps_names = Py_BuildValue("(s)", "buffer_callback");
    if (!dumps || !state->dumps_names)
        return NULL;
    args[1] = PyLong_FromLong(5);
    args[2] = PyObject_GetAttrString(left, "append");
    if (args[1] && args[2])
        data = PyObject_Vectorcall(dumps, args, 2, state->dumps_names);
    Py_XDECREF(args[1]);
    Py_XDECREF(args[2]);
    return data;
}

static PyObject *object_send(hot_connection_t *self, PyObject *data,
                             PyObject **given)
{
    hot_call_t call;

    object_call(self, &call);
    call.kind = HOT_SEND;
    call.tag = 0;
    call.buf = data;
    if (hot_arg_tag(given[1], false, &call.tag) < 0 ||
        hot_arg_deadline(given[2], &call.deadline) < 0)
        return NULL;
    return hot_call_run(&call);
}

static PyObject *object_send_slowly(hot_connection_t *self, PyObject **given)
{
    return PyObject_CallMethod(self->objects, "send", "OOOO", given[0],
                               given[1] ? given[1] : Py_False,
                               given[2] ? given[2] : Py_None,
                               given[3] ? given[3] : Py_False);
}

PyObject *hot_object_send(hot_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames)
{
    static const hot_signature_t signature = {
        "send_obj", 1, 4, {"obj", "tag", "timeout", "lend"}};
    PyObject *given[4], *left, *data, *result = NULL;

    if (hot_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        object_open(self) < 0)
        return NULL;
    if (!self->pickles || object_is_buffer(given[0]))
        return object_send_slowly(self, given);
    left = PyList_New(0);
    data = left ? object_pickle(self->worker->state, given[0], left) : NULL;
    if (data && PyList_GET_SIZE(left) == 0) {
        result = object_send(self, data, given);
    } else if (data) {
        result = PyObject_CallMethod(self->objects, "send_rest", "OOOOO", data,
                                     left, given[1] ? given[1] : Py_False,
                                     given[2] ? given[2] : Py_None,
                                     given[3] ? given[3] : Py_False);
    } else if (left && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear(); /* the slow way takes more, or says the same */
        result = object_send_slowly(self, given);
    }
    Py_XDECREF(data);
    Py_XDECREF(left);
    return result;
}

/* ---- receiving ---- */

static bool object_is_pickle(PyObject *data)
{
    return PyByteArray_CheckExact(data) && PyByteArray_GET_SIZE(data) > 0 &&
           (unsigned char)*PyByteArray_AS_STRING(data) == 0x80;
}

static PyObject *object_load(hot_connection_t *self, PyObject *data)
{
    hot_state_t *state = self->worker->state;
    PyObject *loads = hot_import_once(&state->loads, "pickle", "loads");
    PyObject *value = loads ? PyObject_CallOneArg(loads, data) : NULL;
    PyObject *error, *none;

    if (value)
        return value;
    error = hot_raised_instance();
    none = PyObject_CallMethod(self->objects, "refuse", "O", error);
    Py_XDECREF(none);
    Py_DECREF(error);
    return NULL;
}

PyObject *hot_object_recv(hot_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames)
{
    static const hot_signature_t signature = {
        "recv_obj", 0, 2, {"tag", "timeout"}};
    PyObject *given[2], *data, *value;
    hot_call_t call;

    if (hot_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        object_open(self) < 0)
        return NULL;
    object_call(self, &call);
    call.kind = HOT_RECV_NEW;
    if (hot_arg_tag(given[0], true, &call.tag) < 0)
        return NULL;
    if (given[1] && given[1] != Py_None)
        return PyObject_CallMethod(self->objects, "recv", "iO", (int)call.tag,
                                   given[1]);
    data = hot_call_run(&call);
    if (!data)
        return NULL;
    value = self->pickles && object_is_pickle(data)
                ? object_load(self, data)
                : PyObject_CallMethod(self->objects, "finish", "O", data);
    Py_DECREF(data);
    return value;
}
