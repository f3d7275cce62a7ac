/* Sends and receives Python objects that consist of their pickle alone, in C
 * only. All other objects are sent and received by
 * pscompy/parcel/objects.py. */
#include "connection.h"
#include "memory.h"

int psb_object_bind(psb_connection_t *self, PyObject *const *args,
                    Py_ssize_t n_args)
{
    PyTypeObject *type = self->worker->state->connection_type;

    if (n_args != 3 || !PyObject_TypeCheck(args[1], type)) {
        PyErr_SetString(PyExc_TypeError,
                        "_set_objects() takes Objects, their Connection, and "
                        "whether pickle suffices");
        return -1;
    }
    Py_INCREF(args[0]);
    Py_INCREF(args[1]);
    Py_XSETREF(self->objects, args[0]);
    Py_XSETREF(self->heads, (psb_connection_t *)args[1]);
    self->pickles = args[2] == Py_True;
    return 0;
}

/* Creates the connection's `objects`, the Objects of pscompy.parcel, before the
 * first object is sent or received. */
static int object_open(psb_connection_t *self)
{
    psb_call_t call;
    PyObject *made;

    if (self->objects)
        return 0;
    if (psb_connection_address(self, &call) < 0)
        return -1;
    made = PyObject_CallMethod((PyObject *)self, "_open_objects", NULL);
    Py_XDECREF(made);
    return made && self->objects ? 0 : -1;
}

/* Fills a blocking call on self->heads, the connection that carries objects;
 * the call has no buffer yet. */
static void object_call(psb_connection_t *self, psb_kind_t kind,
                        psb_call_t *call)
{
    psb_call_begin(call, kind);
    psb_connection_address(self->heads, call);
}

/* ---- sending ---- */

/* Returns true for an object whose memory is a buffer, which pickle would
 * copy. */
static bool object_is_buffer(PyObject *object)
{
    const char *type = Py_TYPE(object)->tp_name;

    return PyBytes_CheckExact(object) || PyByteArray_CheckExact(object) ||
           PyMemoryView_Check(object) || strcmp(type, "numpy.ndarray") == 0 ||
           strcmp(type, "array.array") == 0;
}

/* Returns the method append() of an empty list, which collects the buffers that
 * pickle leaves out. Both are reused, because creating them for each object
 * would take as long as a short message. */
static PyObject *object_leave_take(psb_state_t *state)
{
    PyObject *leave = state->leave, *list;

    state->leave = NULL;
    if (leave)
        return leave;
    list = PyList_New(0);
    leave = list ? PyObject_GetAttrString(list, "append") : NULL;
    Py_XDECREF(list);
    return leave;
}

static void object_leave_give(psb_state_t *state, PyObject *leave)
{
    if (!state->leave && Py_REFCNT(leave) == 1 &&
        PyList_GET_SIZE(PyCFunction_GET_SELF(leave)) == 0)
        state->leave = leave;
    else
        Py_DECREF(leave);
}

/* Pickles an object; leave() is called with each buffer that is left out of the
 * pickle. */
static PyObject *object_pickle(psb_state_t *state, PyObject *object,
                               PyObject *leave)
{
    PyObject *dumps = psb_import_once(&state->dumps, "pickle", "dumps");
    PyObject *args[3] = {object, NULL, leave}, *data;

    if (!state->dumps_names)
        state->dumps_names = Py_BuildValue("(s)", "buffer_callback");
    args[1] = PyLong_FromLong(5);
    if (!dumps || !state->dumps_names || !args[1])
        return NULL;
    data = PyObject_Vectorcall(dumps, args, 2, state->dumps_names);
    Py_DECREF(args[1]);
    return data;
}

static PyObject *object_send(psb_connection_t *self, PyObject *data,
                             PyObject **given)
{
    psb_call_t call;

    object_call(self, PSB_SEND, &call);
    call.buf = data;
    call.timeout = given[2];
    if (psb_arg_tag(given[1], false, &call.op.tag) < 0 ||
        psb_arg_deadline(given[2], &call.deadline) < 0)
        return NULL;
    return psb_call_run(&call);
}

/* Sends the object through pscompy.parcel, which is faster than pickle for
 * arrays. */
static PyObject *object_send_slowly(psb_connection_t *self, PyObject **given)
{
    PyObject *apart = PyObject_CallMethod(
        self->objects, "send", "OOOO", given[0], given[1] ? given[1] : Py_False,
        given[2] ? given[2] : Py_None, given[3] ? given[3] : Py_False);

    if (!apart)
        return NULL;
    self->apart = apart == Py_True;
    Py_DECREF(apart);
    Py_RETURN_NONE;
}

static PyObject *object_send_rest(psb_connection_t *self, PyObject *data,
                                  PyObject *left, PyObject **given)
{
    return PyObject_CallMethod(self->objects, "send_rest", "OOOOO", data, left,
                               given[1] ? given[1] : Py_False,
                               given[2] ? given[2] : Py_None,
                               given[3] ? given[3] : Py_False);
}

PyObject *psb_object_send(psb_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "send_obj", 1, 4, {"obj", "tag", "timeout", "lend"}};
    PyObject *given[4], *leave, *left, *data, *result = NULL;
    psb_state_t *state = self->worker ? self->worker->state : NULL;

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        object_open(self) < 0)
        return NULL;
    if (!self->pickles || self->apart || object_is_buffer(given[0]))
        return object_send_slowly(self, given);
    leave = object_leave_take(state);
    if (!leave)
        return NULL;
    left = PyCFunction_GET_SELF(leave);
    data = object_pickle(state, given[0], leave);
    if (data && PyList_GET_SIZE(left) == 0) {
        result = object_send(self, data, given);
    } else if (data) {
        self->apart = true;
        result = object_send_rest(self, data, left, given);
    } else if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        /* pscompy.parcel can pickle more kinds of objects than pickle, or
         * raises the same error. */
        PyErr_Clear();
        result = object_send_slowly(self, given);
    }
    Py_XDECREF(data);
    object_leave_give(state, leave);
    return result;
}

/* ---- receiving ---- */

static bool object_is_pickle(const char *bytes, Py_ssize_t nbytes)
{
    return nbytes > 0 && (unsigned char)*bytes == 0x80;
}

static PyObject *object_load(psb_connection_t *self, PyObject *data)
{
    psb_state_t *state = self->worker->state;
    PyObject *loads = psb_import_once(&state->loads, "pickle", "loads");
    PyObject *value = loads ? PyObject_CallOneArg(loads, data) : NULL;
    PyObject *error, *none;

    if (value)
        return value;
    error = psb_raised_instance();
    none = PyObject_CallMethod(self->objects, "refuse", "O", error);
    Py_XDECREF(none);
    Py_DECREF(error);
    return NULL;
}

/* Makes the object from a short message in a Room (memory.h). Loaders
 * other than pickle may keep the bytes, so they get a copy. */
static PyObject *object_from_room(psb_connection_t *self, PyObject *room)
{
    Py_ssize_t nbytes;
    const char *bytes = psb_room_bytes(room, &nbytes);
    PyObject *data, *value;

    if (self->pickles && object_is_pickle(bytes, nbytes))
        return object_load(self, room);
    data = PyByteArray_FromStringAndSize(bytes, nbytes);
    if (!data)
        return NULL;
    value = PyObject_CallMethod(self->objects, "finish", "O", data);
    Py_DECREF(data);
    return value;
}

static PyObject *object_from_bytes(psb_connection_t *self, PyObject *data)
{
    if (self->pickles && object_is_pickle(PyByteArray_AS_STRING(data),
                                          PyByteArray_GET_SIZE(data)))
        return object_load(self, data);
    return PyObject_CallMethod(self->objects, "finish", "O", data);
}

static PyObject *object_receive(psb_connection_t *self, psb_call_t *call)
{
    PyObject *data, *value;

    data = psb_call_run(call);
    if (!data)
        return NULL;
    if (PyByteArray_CheckExact(data)) {
        value = object_from_bytes(self, data);
        Py_DECREF(data);
    } else {
        value = object_from_room(self, data);
        psb_room_give(self->worker, data);
    }
    return value;
}

PyObject *psb_object_recv(psb_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "recv_obj", 0, 2, {"tag", "timeout"}};
    PyObject *given[2];
    psb_call_t call;

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        object_open(self) < 0)
        return NULL;
    object_call(self, PSB_RECV_ROOM, &call);
    if (psb_arg_tag(given[0], true, &call.op.tag) < 0)
        return NULL;
    if (given[1] && given[1] != Py_None)
        return PyObject_CallMethod(self->objects, "recv", "iO",
                                   (int)call.op.tag, given[1]);
    return object_receive(self, &call);
}
