/* The calls of Python's functions to the library: the methods of the module
 * that pscompy_mpi.host.open_world gets. */
#include "host_python.h"

#include <stdlib.h>

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
    comm = psc_mpi_library->comm_create(&made);
    free(members);
    return comm == MPI_COMM_NULL ? PyErr_NoMemory() : PyLong_FromLong(comm);
}

static PyObject *native_comm_destroy(PyObject *self, PyObject *comm)
{
    (void)self;
    psc_mpi_library->comm_destroy((MPI_Comm)PyLong_AsLong(comm));
    Py_RETURN_NONE;
}

static PyObject *native_comm_move(PyObject *self, PyObject *args)
{
    unsigned context;
    MPI_Comm comm;

    (void)self;
    if (!PyArg_ParseTuple(args, "iI", &comm, &context))
        return NULL;
    psc_mpi_library->comm_move(comm, context);
    Py_RETURN_NONE;
}

static PyObject *native_request_promise(PyObject *self, PyObject *comm)
{
    MPI_Request made =
        psc_mpi_library->request_promise((MPI_Comm)PyLong_AsLong(comm));

    (void)self;
    return made == MPI_REQUEST_NULL ? PyErr_NoMemory() : PyLong_FromLong(made);
}

static PyObject *native_request_keep(PyObject *self, PyObject *args)
{
    MPI_Request request;
    int code;

    (void)self;
    if (!PyArg_ParseTuple(args, "ii", &request, &code))
        return NULL;
    psc_mpi_library->request_keep(request, code);
    Py_RETURN_NONE;
}

static PyObject *native_comm_inherit(PyObject *self, PyObject *args)
{
    MPI_Comm from, to;

    (void)self;
    if (!PyArg_ParseTuple(args, "ii", &from, &to))
        return NULL;
    psc_mpi_library->comm_set_errhandler(
        to, psc_mpi_library->comm_errhandler(from));
    Py_RETURN_NONE;
}

static PyObject *native_win_create(PyObject *self, PyObject *args)
{
    int comm, size, file;
    MPI_Win made;

    (void)self;
    if (!PyArg_ParseTuple(args, "iii", &comm, &size, &file))
        return NULL;
    made = psc_mpi_library->win_create(comm, size, file);
    return made == MPI_WIN_NULL ? PyErr_NoMemory() : PyLong_FromLong(made);
}

static PyObject *native_win_destroy(PyObject *self, PyObject *win)
{
    (void)self;
    psc_mpi_library->win_destroy((MPI_Win)PyLong_AsLong(win));
    Py_RETURN_NONE;
}

static PyObject *native_comm_set_errhandler(PyObject *self, PyObject *args)
{
    MPI_Errhandler handler;
    MPI_Comm comm;

    (void)self;
    if (!PyArg_ParseTuple(args, "ii", &comm, &handler))
        return NULL;
    psc_mpi_library->comm_set_errhandler(comm, handler);
    Py_RETURN_NONE;
}

static PyObject *native_type_create(PyObject *self, PyObject *args)
{
    MPI_Count it[5];
    MPI_Datatype made;

    (void)self;
    if (!PyArg_ParseTuple(args, "LLLLL", it, it + 1, it + 2, it + 3, it + 4))
        return NULL;
    made = psc_mpi_library->type_create(it);
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
    if (!psc_mpi_library->type_commit(type, &it))
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *native_type_free(PyObject *self, PyObject *type)
{
    (void)self;
    psc_mpi_library->type_free((MPI_Datatype)PyLong_AsLong(type));
    Py_RETURN_NONE;
}

static PyObject *native_error_add(PyObject *self, PyObject *args)
{
    const char *text;
    int class;

    (void)self;
    if (!PyArg_ParseTuple(args, "is", &class, &text))
        return NULL;
    return PyLong_FromLong(psc_mpi_library->error_add(class, text));
}

static PyObject *native_error_last(PyObject *self, PyObject *nothing)
{
    (void)self;
    (void)nothing;
    return PyLong_FromLong(psc_mpi_library->error_last());
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

static PyObject *native_ended(PyObject *self, PyObject *exits)
{
    bool truth = PyObject_IsTrue(exits) == 1;

    (void)self;
    Py_BEGIN_ALLOW_THREADS psc_mpi_library->ended(truth);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyMethodDef native_methods[] = {
    {"comm_create", native_comm_create, METH_VARARGS, NULL},
    {"comm_destroy", native_comm_destroy, METH_O, NULL},
    {"comm_move", native_comm_move, METH_VARARGS, NULL},
    {"request_promise", native_request_promise, METH_O, NULL},
    {"request_keep", native_request_keep, METH_VARARGS, NULL},
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
    {"ended", native_ended, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static PyModuleDef native = {PyModuleDef_HEAD_INIT,
                             .m_name = "pscompy_mpi._native", .m_size = -1,
                             .m_methods = native_methods};

PyObject *psc_mpi_native_create(void)
{
    return PyModule_Create(&native);
}
