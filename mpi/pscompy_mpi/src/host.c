/* The host: all of the library that knows Python. MPI_Init loads it. It opens
 * the World, takes calls of MPI functions that live in Python there, and says
 * when a thread that waits must let the GIL go. It uses Python's limited API,
 * so that one build serves all versions. */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
#include <string.h>

#include "host.h"

static const psc_mpi_library_t *library;
static PyObject *module; /* pscompy_mpi.host */

/* PyGILState_Check is not part of the limited API, but is there. */
extern int PyGILState_Check(void);

/* ---- errors of Python ---- */

/* Write the exception that was raised as text, and clear it. */
static void error_text(char *text, size_t room)
{
    PyObject *type, *value, *traceback, *string;
    const char *utf8 = NULL;

    PyErr_Fetch(&type, &value, &traceback);
    string = value ? PyObject_Str(value) : NULL;
    if (string)
        utf8 = PyUnicode_AsUTF8AndSize(string, NULL);
    PyErr_Clear();
    PyOS_snprintf(text, room, "%s", utf8 ? utf8 : "an error of Python");
    Py_XDECREF(string);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

static int error_code(void)
{
    char text[MPI_MAX_ERROR_STRING];

    error_text(text, sizeof text);
    return library->error_add(MPI_ERR_OTHER, text);
}

/* ---- what Python's functions call ---- */

/* Fill in `members` from a list; returns NULL without an exception if the
 * object is None. */
static int32_t *native_members(PyObject *object)
{
    Py_ssize_t n = object == Py_None ? 0 : PyList_Size(object);
    int32_t *members = n > 0 ? malloc((size_t)n * sizeof *members) : NULL;

    for (Py_ssize_t i = 0; members && i < n; i++)
        members[i] = (int32_t)PyLong_AsLong(PyList_GetItem(object, i));
    return members;
}

static PyObject *native_comm_create(PyObject *self, PyObject *args)
{
    psc_mpi_comm_args_t made = {0};
    PyObject *object;
    int32_t *members;
    MPI_Comm comm;

    (void)self;
    if (!PyArg_ParseTuple(args, "IiiOi", &made.context, &made.rank, &made.size,
                          &object, &made.n_first))
        return NULL;
    members = native_members(object);
    if (PyErr_Occurred())
        return NULL;
    made.members = members;
    comm = library->comm_create(&made);
    free(members);
    return comm == MPI_COMM_NULL ? PyErr_NoMemory() : PyLong_FromLong(comm);
}

static PyObject *native_comm_destroy(PyObject *self, PyObject *comm)
{
    (void)self;
    library->comm_destroy((MPI_Comm)PyLong_AsLong(comm));
    Py_RETURN_NONE;
}

static PyObject *native_comm_inherit(PyObject *self, PyObject *args)
{
    MPI_Comm from, to;

    (void)self;
    if (!PyArg_ParseTuple(args, "ii", &from, &to))
        return NULL;
    library->comm_set_errhandler(to, library->comm_errhandler(from));
    Py_RETURN_NONE;
}

static PyObject *native_win_create(PyObject *self, PyObject *args)
{
    int comm, size, file;
    MPI_Win made;

    (void)self;
    if (!PyArg_ParseTuple(args, "iii", &comm, &size, &file))
        return NULL;
    made = library->win_create(comm, size, file);
    return made == MPI_WIN_NULL ? PyErr_NoMemory() : PyLong_FromLong(made);
}

static PyObject *native_win_destroy(PyObject *self, PyObject *win)
{
    (void)self;
    library->win_destroy((MPI_Win)PyLong_AsLong(win));
    Py_RETURN_NONE;
}

static PyObject *native_comm_set_errhandler(PyObject *self, PyObject *args)
{
    MPI_Errhandler handler;
    MPI_Comm comm;

    (void)self;
    if (!PyArg_ParseTuple(args, "ii", &comm, &handler))
        return NULL;
    library->comm_set_errhandler(comm, handler);
    Py_RETURN_NONE;
}

static PyObject *native_type_create(PyObject *self, PyObject *args)
{
    MPI_Count it[5];
    MPI_Datatype made;

    (void)self;
    if (!PyArg_ParseTuple(args, "LLLLL", it, it + 1, it + 2, it + 3, it + 4))
        return NULL;
    made = library->type_create(it);
    return made == MPI_DATATYPE_NULL ? PyErr_NoMemory() : PyLong_FromLong(made);
}

static PyObject *native_type_commit(PyObject *self, PyObject *args)
{
    psc_mpi_commit_args_t it;
    const char *blocks, *elements;
    Py_ssize_t n_blocks, len, elements_len;
    long long times;
    int type;

    (void)self;
    if (!PyArg_ParseTuple(args, "iny#Ly#", &type, &n_blocks, &blocks, &len,
                          &times, &elements, &elements_len))
        return NULL;
    it = (psc_mpi_commit_args_t){
        .n_blocks = (size_t)n_blocks,
        .blocks = (const int64_t *)(const void *)blocks,
        .times = times,
        .n_elements = (size_t)elements_len / (2 * sizeof(int64_t)),
        .elements = (const int64_t *)(const void *)elements};
    if (!library->type_commit(type, &it))
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *native_type_free(PyObject *self, PyObject *type)
{
    (void)self;
    library->type_free((MPI_Datatype)PyLong_AsLong(type));
    Py_RETURN_NONE;
}

static PyObject *native_error_add(PyObject *self, PyObject *args)
{
    const char *text;
    int class;

    (void)self;
    if (!PyArg_ParseTuple(args, "is", &class, &text))
        return NULL;
    return PyLong_FromLong(library->error_add(class, text));
}

static PyObject *native_error_last(PyObject *self, PyObject *nothing)
{
    (void)self;
    (void)nothing;
    return PyLong_FromLong(library->error_last());
}

/* MPI_COMM_NULL_COPY_FN and the like are NULL. */
static PyObject *native_call_copy(PyObject *self, PyObject *args)
{
    unsigned long long function, state, value, copied = 0;
    MPI_Comm_copy_attr_function *copy;
    int handle, keyval, flag = 0, code = MPI_SUCCESS;
    void *result = NULL;

    (void)self;
    if (!PyArg_ParseTuple(args, "KiiKK", &function, &handle, &keyval, &state,
                          &value))
        return NULL;
    copy = (MPI_Comm_copy_attr_function *)(uintptr_t)function;
    if (copy)
        code = copy(handle, keyval, (void *)(uintptr_t)state,
                    (void *)(uintptr_t)value, &result, &flag);
    copied = (uintptr_t)result;
    return Py_BuildValue("iKi", code, copied, flag);
}

static PyObject *native_call_delete(PyObject *self, PyObject *args)
{
    unsigned long long function, value, state;
    MPI_Comm_delete_attr_function *delete;
    int handle, keyval, code = MPI_SUCCESS;

    (void)self;
    if (!PyArg_ParseTuple(args, "KiiKK", &function, &handle, &keyval, &value,
                          &state))
        return NULL;
    delete = (MPI_Comm_delete_attr_function *)(uintptr_t)function;
    if (delete)
        code = delete(handle, keyval, (void *)(uintptr_t)value,
                      (void *)(uintptr_t)state);
    return PyLong_FromLong(code);
}

static PyObject *native_ended(PyObject *self, PyObject *nothing)
{
    (void)self;
    (void)nothing;
    library->ended();
    Py_RETURN_NONE;
}

static PyMethodDef native_methods[] = {
    {"comm_create", native_comm_create, METH_VARARGS, NULL},
    {"comm_destroy", native_comm_destroy, METH_O, NULL},
    {"comm_inherit", native_comm_inherit, METH_VARARGS, NULL},
    {"win_create", native_win_create, METH_VARARGS, NULL},
    {"win_destroy", native_win_destroy, METH_O, NULL},
    {"comm_set_errhandler", native_comm_set_errhandler, METH_VARARGS, NULL},
    {"type_create", native_type_create, METH_VARARGS, NULL},
    {"type_commit", native_type_commit, METH_VARARGS, NULL},
    {"type_free", native_type_free, METH_O, NULL},
    {"error_add", native_error_add, METH_VARARGS, NULL},
    {"error_last", native_error_last, METH_NOARGS, NULL},
    {"call_copy", native_call_copy, METH_VARARGS, NULL},
    {"call_delete", native_call_delete, METH_VARARGS, NULL},
    {"ended", native_ended, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyModuleDef native = {PyModuleDef_HEAD_INIT,
                             .m_name = "pscompy_mpi._native", .m_size = -1,
                             .m_methods = native_methods};

/* ---- connections ---- */

static psc_conn_t *host_connection(int rank)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *address = PyObject_CallMethod(module, "connection", "i", rank);
    void *conn = address ? PyLong_AsVoidPtr(address) : NULL;

    Py_XDECREF(address);
    PyErr_Clear();
    PyGILState_Release(state);
    return conn;
}

static void host_comm_ended(uint32_t context)
{
    PyGILState_STATE state = PyGILState_Ensure();

    Py_XDECREF(PyObject_CallMethod(module, "comm_ended", "I", context));
    PyErr_Clear();
    PyGILState_Release(state);
}

/* ---- the GIL ---- */

static bool host_gil_held(void)
{
    return PyGILState_Check() != 0;
}

static void *host_gil_release(void)
{
    return PyEval_SaveThread();
}

static void host_gil_take(void *state)
{
    PyEval_RestoreThread(state);
}

static bool host_signals(void)
{
    PyGILState_STATE state = PyGILState_Ensure();
    bool quiet = PyErr_CheckSignals() == 0;

    if (!quiet) {
        PyErr_Clear();
        PyErr_SetInterrupt();
    }
    PyGILState_Release(state);
    return quiet;
}

/* ---- functions that live in Python ---- */

static bool is_array(char way)
{
    return way == PSC_MPI_ARRAY || way == PSC_MPI_ARRAY_RESULT ||
           way == PSC_MPI_ARRAY_BOTH;
}

static bool is_result(char way)
{
    return way == PSC_MPI_RESULT || way == PSC_MPI_BOTH ||
           way == PSC_MPI_ARRAY_RESULT || way == PSC_MPI_ARRAY_BOTH;
}

static bool is_given(char way)
{
    return way != PSC_MPI_RESULT && way != PSC_MPI_ARRAY_RESULT;
}

/* Returns the element of an array in memory. */
static PyObject *element(char code, const void *at, Py_ssize_t i)
{
    if (code == PSC_MPI_CODE_LONG)
        return PyLong_FromLongLong(((const MPI_Count *)at)[i]);
    if (code == PSC_MPI_CODE_ADDRESS || code == PSC_MPI_CODE_TEXT)
        return PyLong_FromVoidPtr(((void *const *)at)[i]);
    return PyLong_FromLong(((const int *)at)[i]);
}

static PyObject *given_array(char code, const void *at, Py_ssize_t n)
{
    PyObject *list = PyList_New(n > 0 ? n : 0);

    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyObject *item = element(code, at, i);

        if (!item || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *given_value(char code, intptr_t value)
{
    if (code == PSC_MPI_CODE_TEXT)
        return PyUnicode_DecodeUTF8((const char *)value,
                                    (Py_ssize_t)strlen((const char *)value),
                                    "surrogateescape");
    if (code == PSC_MPI_CODE_ADDRESS)
        return PyLong_FromVoidPtr((void *)value);
    return PyLong_FromLongLong(value);
}

static PyObject *given(const char *argument, const intptr_t *values)
{
    char way = argument[0], code = argument[1];

    if (is_array(way))
        return given_array(code, (const void *)values[0], values[1]);
    if (way == PSC_MPI_BOTH)
        return element(code, (const void *)values[0], 0);
    return given_value(code, values[0]);
}

/* Returns the arguments that are values, as a list. */
static PyObject *given_all(const char *arguments, const intptr_t *values)
{
    PyObject *list = PyList_New(0);

    for (; list && *arguments; arguments += 2) {
        PyObject *item =
            is_given(arguments[0]) ? given(arguments, values) : NULL;

        if (is_given(arguments[0]) && (!item || PyList_Append(list, item) < 0))
            Py_CLEAR(list);
        Py_XDECREF(item);
        values += is_array(arguments[0]) ? 2 : 1;
    }
    return list;
}

static void put_element(char code, void *at, Py_ssize_t i, PyObject *value)
{
    if (value == Py_None)
        return;
    if (code == PSC_MPI_CODE_LONG)
        ((MPI_Count *)at)[i] = PyLong_AsLongLong(value);
    else if (code == PSC_MPI_CODE_ADDRESS)
        ((void **)at)[i] = PyLong_AsVoidPtr(value);
    else
        ((int *)at)[i] = (int)PyLong_AsLong(value);
}

static void put_text(char *at, Py_ssize_t room, PyObject *value)
{
    PyObject *bytes =
        PyUnicode_AsEncodedString(value, "utf-8", "surrogateescape");

    if (bytes && room > 0)
        PyOS_snprintf(at, (size_t)room, "%s", PyBytes_AsString(bytes));
    Py_XDECREF(bytes);
}

static void put_array(char code, const intptr_t *values, PyObject *value)
{
    Py_ssize_t n = PyList_Check(value) ? PyList_Size(value) : 0;

    if (code == PSC_MPI_CODE_TEXT && value != Py_None)
        put_text((char *)values[0], values[1], value);
    for (Py_ssize_t i = 0; i < n && i < values[1]; i++)
        put_element(code, (void *)values[0], i, PyList_GetItem(value, i));
}

/* Write a list of results to where the arguments say. */
static void put_all(const char *arguments, const intptr_t *values,
                    PyObject *results)
{
    Py_ssize_t n = 0;

    for (; *arguments; arguments += 2) {
        PyObject *value = is_result(arguments[0]) && n < PyList_Size(results)
                              ? PyList_GetItem(results, n++)
                              : NULL;

        if (value && is_array(arguments[0]))
            put_array(arguments[1], values, value);
        else if (value)
            put_element(arguments[1], (void *)values[0], 0, value);
        values += is_array(arguments[0]) ? 2 : 1;
    }
}

/* pscompy_mpi.carrier.call returns the code of an error, or a list. */
static int carry(const psc_mpi_function_t *it, const intptr_t *values)
{
    PyObject *list = given_all(it->arguments, values);
    PyObject *results =
        list ? PyObject_CallMethod(module, "call", "sssO", it->module, it->name,
                                   it->arguments, list)
             : NULL;
    int code = MPI_SUCCESS;

    Py_XDECREF(list);
    if (results && PyList_Check(results))
        put_all(it->arguments, values, results);
    else if (results)
        code = (int)PyLong_AsLong(results);
    if (PyErr_Occurred())
        code = error_code();
    Py_XDECREF(results);
    return code;
}

static int host_call(const psc_mpi_function_t *it, const intptr_t *values)
{
    PyGILState_STATE state = PyGILState_Ensure();
    int code = carry(it, values);

    PyGILState_Release(state);
    return code;
}

/* ---- beginning and end ---- */

static int host_finalize(void)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = PyObject_CallMethod(module, "finalize", NULL);
    int code = result ? MPI_SUCCESS : error_code();

    Py_XDECREF(result);
    PyGILState_Release(state);
    return code;
}

static void host_abort(int code)
{
    PyGILState_STATE state = PyGILState_Ensure();

    Py_XDECREF(PyObject_CallMethod(module, "abort", "i", code));
    PyErr_Clear();
    PyGILState_Release(state);
}

/* Open the World, and fill in what Python knows. */
static bool open_world(psc_mpi_host_t *host)
{
    PyObject *functions = PyModule_Create(&native);
    PyObject *numbers = NULL;
    unsigned long long api = 0, worker = 0;
    bool opened;

    module = PyImport_ImportModule("pscompy_mpi.host");
    if (module && functions &&
        PyModule_AddStringConstant(functions, "path", library->path) == 0)
        numbers = PyObject_CallMethod(module, "open_world", "O", functions);
    Py_XDECREF(functions);
    opened = numbers && PyArg_ParseTuple(numbers, "KKii", &api, &worker,
                                         &host->rank, &host->size);
    host->api = (const psc_api_t *)(uintptr_t)api;
    host->worker = (psc_worker_t *)(uintptr_t)worker;
    Py_XDECREF(numbers);
    return opened;
}

static bool check_abi(const psc_mpi_host_t *host)
{
    if (host->api->abi == PSC_API_ABI)
        return true;
    PyErr_SetString(PyExc_ImportError,
                    "libmpi.so.12 was built for another version of pscompy");
    return false;
}

static bool create_comms(void)
{
    PyObject *made = PyObject_CallMethod(module, "create_comms", NULL);

    Py_XDECREF(made);
    return made != NULL;
}

__attribute__((visibility("default"))) bool
psc_mpi_host_start(const psc_mpi_library_t *functions, psc_mpi_host_t *host,
                   char *text, size_t room)
{
    PyGILState_STATE state = PyGILState_Ensure();
    bool started;

    library = functions;
    *host = (psc_mpi_host_t){.connection = host_connection,
                             .comm_ended = host_comm_ended,
                             .gil_held = host_gil_held,
                             .gil_release = host_gil_release,
                             .gil_take = host_gil_take,
                             .signals = host_signals,
                             .call = host_call,
                             .finalize = host_finalize,
                             .abort = host_abort};
    started = open_world(host) && check_abi(host) && library->started() &&
              create_comms();
    if (!started)
        error_text(text, room);
    PyGILState_Release(state);
    return started;
}
