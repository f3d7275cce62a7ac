/* The host: all of the library that knows Python. MPI_Init loads it. It opens
 * the World, connects, and says when a thread that waits must let the GIL go.
 * host_call.c takes calls of MPI functions that live in Python there,
 * host_native.c takes those that Python makes. */
#include "host_python.h"

const psc_mpi_library_t *psc_mpi_library;
PyObject *psc_mpi_module;
static const psc_api_t *api;

/* The state of the thread that has the GIL, or in newer versions of Python of
 * this thread if it has the GIL; else NULL. They are not part of the limited
 * API; each version has one at least. */
extern __attribute__((weak)) PyThreadState *_PyThreadState_UncheckedGet(void);
extern __attribute__((weak)) PyThreadState *PyThreadState_GetUnchecked(void);

/* A call of Python whose result nobody needs has ended. */
static void leave_python(PyGILState_STATE state, PyObject *result)
{
    Py_XDECREF(result);
    psc_mpi_error_clear();
    PyGILState_Release(state);
}

/* ---- connections ---- */

static psc_conn_t *host_connection(int rank)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *address =
        PyObject_CallMethod(psc_mpi_module, "connection", "i", rank);
    void *conn = address ? PyLong_AsVoidPtr(address) : NULL;

    Py_XDECREF(address);
    psc_mpi_error_clear();
    PyGILState_Release(state);
    return conn;
}

static void host_comm_ended(uint32_t context)
{
    PyGILState_STATE state = PyGILState_Ensure();

    leave_python(
        state, PyObject_CallMethod(psc_mpi_module, "comm_ended", "I", context));
}

/* ---- the GIL ---- */

/* PyGILState_Check says yes in every thread once there is a subinterpreter. */
static bool host_gil_held(void)
{
    PyThreadState *holder = PyThreadState_GetUnchecked
                                ? PyThreadState_GetUnchecked()
                                : _PyThreadState_UncheckedGet();

    return holder && holder == PyGILState_GetThisThreadState();
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

    if (!quiet)
        psc_mpi_error_later();
    PyGILState_Release(state);
    return quiet;
}

/* ---- operations of the program ---- */

static void host_drain(void)
{
    PyGILState_STATE state = PyGILState_Ensure();

    leave_python(state, PyObject_CallMethod(psc_mpi_module, "drain", NULL));
}

static void host_call_free(psc_request_t *core)
{
    PyGILState_STATE state = PyGILState_Ensure();

    api->request_free(core);
    PyGILState_Release(state);
}

/* ---- beginning and end ---- */

static int host_finalize(void)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = PyObject_CallMethod(psc_mpi_module, "finalize", NULL);
    int code = result ? MPI_SUCCESS : psc_mpi_error_code();

    Py_XDECREF(result);
    PyGILState_Release(state);
    return code;
}

static void host_abort(int code)
{
    PyGILState_STATE state = PyGILState_Ensure();

    leave_python(state,
                 PyObject_CallMethod(psc_mpi_module, "abort", "i", code));
}

/* Open the World, and fill in what Python knows. */
static bool open_world(psc_mpi_host_t *host)
{
    PyObject *functions = psc_mpi_native_create();
    PyObject *numbers = NULL;
    unsigned long long address = 0, worker = 0;
    bool opened;

    psc_mpi_module = PyImport_ImportModule("pscompy_mpi.host");
    if (psc_mpi_module && functions &&
        PyModule_AddStringConstant(functions, "path", psc_mpi_library->path) ==
            0)
        numbers =
            PyObject_CallMethod(psc_mpi_module, "open_world", "O", functions);
    Py_XDECREF(functions);
    opened = numbers && PyArg_ParseTuple(numbers, "KKii", &address, &worker,
                                         &host->rank, &host->size);
    host->api = api = (const psc_api_t *)(uintptr_t)address;
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
    PyObject *made = PyObject_CallMethod(psc_mpi_module, "create_comms", NULL);

    Py_XDECREF(made);
    return made != NULL;
}

__attribute__((visibility("default"))) bool
psc_mpi_host_start(const psc_mpi_library_t *functions, psc_mpi_host_t *host,
                   char *text, size_t room)
{
    PyGILState_STATE state = PyGILState_Ensure();
    bool started;

    psc_mpi_library = functions;
    *host = (psc_mpi_host_t){.connection = host_connection,
                             .comm_ended = host_comm_ended,
                             .gil_held = host_gil_held,
                             .gil_release = host_gil_release,
                             .gil_take = host_gil_take,
                             .signals = host_signals,
                             .drain = host_drain,
                             .call_free = host_call_free,
                             .call = psc_mpi_host_call,
                             .finalize = host_finalize,
                             .abort = host_abort};
    started = open_world(host) && check_abi(host) &&
              psc_mpi_library->started() && create_comms();
    if (!started)
        psc_mpi_error_text(text, room);
    PyGILState_Release(state);
    return started;
}
