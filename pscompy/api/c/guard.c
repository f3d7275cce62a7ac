/* The types Lock and NoWaiting, and the calls that wait until a thread has
 * released its Locks. They are written in C because no signal handler and no
 * finalizer can run between the steps of a function in C: a Lock is either
 * taken and counted, or neither. */
#include "guard.h"

#include <pythread.h>

/* The state of the calling thread. */
static _Thread_local struct {
    unsigned n_locks;      /* number of Locks that the thread holds */
    unsigned n_no_waiting; /* number of NoWaiting that the thread is in */
    PyObject
        *later; /* list of (function, args), or NULL; guard_leave calls them */
} here;

bool psb_guard_may_wait(void)
{
    return !here.n_locks && !here.n_no_waiting;
}

PyObject *psb_guard_refuse(void)
{
    PyErr_SetString(
        PyExc_RuntimeError,
        "this call would wait for ever: it was made by a finalizer or a signal "
        "handler that runs on pscompy's control thread, or in the middle of "
        "another call of pscompy; use a call that does not wait (isend, irecv, "
        "isend_obj, irecv_obj, submit), and wait for its result elsewhere");
    return NULL;
}

/* ---- calls that are put off ---- */

/* Calls a function that has nobody to tell of its exceptions. */
static void guard_call(PyObject *function, PyObject *args)
{
    bool interrupted = psb_interrupt_take();
    PyObject *result = PyObject_CallObject(function, args);

    if (!result)
        PyErr_WriteUnraisable(function);
    Py_XDECREF(result);
    psb_interrupt_return(interrupted);
}

/* Makes the calls that were put off, if the thread has released all Locks. */
static void guard_leave(void)
{
    while (!here.n_locks && here.later) {
        PyObject *later = here.later;

        here.later = NULL;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(later); i++)
            guard_call(PyTuple_GET_ITEM(PyList_GET_ITEM(later, i), 0),
                       PyTuple_GET_ITEM(PyList_GET_ITEM(later, i), 1));
        Py_DECREF(later);
    }
}

static int guard_put_off(PyObject *function, PyObject *args)
{
    PyObject *call = PyTuple_Pack(2, function, args);
    PyObject *list = here.later ? NULL : PyList_New(0);
    int failed;

    if (!here.later) /* the allocations may have run a finalizer that set it */
        here.later = list;
    else
        Py_XDECREF(list);
    failed = !call || !here.later || PyList_Append(here.later, call) < 0;
    Py_XDECREF(call);
    return failed ? -1 : 0;
}

void psb_guard_call(PyObject *function, PyObject *argument)
{
    PyObject *args = PyTuple_Pack(1, argument);

    if (args && !here.n_locks)
        guard_call(function, args);
    else if (!args || guard_put_off(function, args) < 0)
        PyErr_WriteUnraisable(function);
    Py_XDECREF(args);
}

static PyObject *guard_when_outside(PyObject *module, PyObject *args)
{
    PyObject *function, *rest, *result = NULL;

    (void)module;
    if (PyTuple_GET_SIZE(args) < 1)
        return PyErr_Format(PyExc_TypeError, "when_outside() needs a function");
    function = PyTuple_GET_ITEM(args, 0);
    rest = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
    if (!rest)
        return NULL;
    if (!here.n_locks)
        result = PyObject_CallObject(function, rest);
    else if (guard_put_off(function, rest) == 0)
        result = Py_NewRef(Py_None);
    Py_DECREF(rest);
    return result;
}

static PyObject *guard_inside(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(here.n_locks > 0);
}

static PyObject *guard_may_wait(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(psb_guard_may_wait());
}

static PyObject *guard_require_waiting(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (!psb_guard_may_wait())
        return psb_guard_refuse();
    Py_RETURN_NONE;
}

PyMethodDef psb_guard_functions[] = {
    {"inside", guard_inside, METH_NOARGS,
     "inside($module)\n--\n\n"
     "Whether the calling thread holds a Lock."},
    {"may_wait", guard_may_wait, METH_NOARGS,
     "may_wait($module)\n--\n\n"
     "Whether the calling thread may wait: it holds no Lock, and is not in a\n"
     "NoWaiting."},
    {"require_waiting", guard_require_waiting, METH_NOARGS,
     "require_waiting($module)\n--\n\n"
     "Raise RuntimeError if the calling thread may not wait."},
    {"when_outside", guard_when_outside, METH_VARARGS,
     "when_outside($module, function, /, *args)\n--\n\n"
     "Call function(*args) and return its result or, if the calling thread\n"
     "holds a Lock, return None, and call it as soon as the thread holds\n"
     "none; sys.unraisablehook then gets its exception."},
    {NULL, NULL, 0, NULL}};

/* ---- Lock ---- */

typedef struct psb_lock {
    PyObject_HEAD PyThread_type_lock lock;
    unsigned long
        owner; /* the thread that holds the lock, if `count` is not 0 */
    unsigned count; /* how often the owner has taken the lock */
} psb_lock_t;

static bool lock_owned(const psb_lock_t *self)
{
    return self->count && self->owner == PyThread_get_thread_ident();
}

/* Returns the microseconds until the deadline, or -1 without a limit. */
static PY_TIMEOUT_T lock_left(int64_t deadline)
{
    int64_t left = deadline - psc_clock_now();

    if (deadline == PSC_FOREVER)
        return -1;
    return left > 0 ? left / 1000 + 1 : 0;
}

/* Waits for the lock in steps, between which the handlers of signals run if
 * `handle` is set. Returns PY_LOCK_INTR if a handler has raised an exception;
 * the thread does not have the lock then. */
static PyLockStatus lock_wait(psb_lock_t *self, int64_t deadline, bool handle)
{
    PyLockStatus status;

    do {
        PY_TIMEOUT_T us = lock_left(deadline);

        Py_BEGIN_ALLOW_THREADS status =
            PyThread_acquire_lock_timed(self->lock, us, handle);
        Py_END_ALLOW_THREADS
    } while (status == PY_LOCK_INTR && PyErr_CheckSignals() == 0);
    return status;
}

/* Takes the lock `count` times. Returns 0 if another thread holds it until the
 * deadline, and -1 if the handler of a signal has raised an exception, which
 * can happen if `handle` is set. */
static int lock_take(psb_lock_t *self, unsigned count, int64_t deadline,
                     bool handle)
{
    PyLockStatus status = PY_LOCK_ACQUIRED;

    if (!lock_owned(self) && !PyThread_acquire_lock(self->lock, NOWAIT_LOCK))
        status = lock_wait(self, deadline, handle);
    if (status != PY_LOCK_ACQUIRED)
        return status == PY_LOCK_INTR ? -1 : 0;
    self->owner = PyThread_get_thread_ident();
    self->count += count;
    here.n_locks += count;
    return 1;
}

/* Raises RuntimeError, and returns NULL, if another thread holds the lock. */
static PyObject *lock_give(psb_lock_t *self, unsigned count)
{
    if (!lock_owned(self))
        return PyErr_Format(PyExc_RuntimeError,
                            "the calling thread does not hold this Lock");
    self->count -= count;
    here.n_locks -= count;
    if (!self->count)
        PyThread_release_lock(self->lock);
    guard_leave();
    Py_RETURN_NONE;
}

static PyObject *lock_enter(psb_lock_t *self, PyObject *unused)
{
    (void)unused;
    if (lock_take(self, 1, PSC_FOREVER, true) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *lock_exit(psb_lock_t *self, PyObject *exception)
{
    (void)exception;
    return lock_give(self, 1);
}

/* Releases the lock if the calling thread holds it. */
static PyObject *lock_exit_held(psb_lock_t *self, PyObject *exception)
{
    if (lock_owned(self))
        return lock_exit(self, exception);
    Py_RETURN_NONE;
}

static PyObject *lock_acquire(psb_lock_t *self, PyObject *args,
                              PyObject *kwargs)
{
    static char *names[] = {"blocking", "timeout", NULL};
    int blocking = 1;
    PyObject *timeout = NULL;
    int64_t deadline = PSC_FOREVER;
    int taken;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|pO:acquire", names,
                                     &blocking, &timeout) ||
        psb_arg_deadline(timeout, &deadline) < 0)
        return NULL;
    taken = lock_take(self, 1, blocking ? deadline : psc_clock_now(), true);
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

static PyObject *lock_locked(psb_lock_t *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(self->count > 0);
}

static PyObject *lock_is_owned(psb_lock_t *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(lock_owned(self));
}

static PyObject *lock_release_save(psb_lock_t *self, PyObject *unused)
{
    unsigned count = self->count;
    PyObject *given = lock_give(self, count);

    (void)unused;
    Py_XDECREF(given);
    return given ? PyLong_FromUnsignedLong(count) : NULL;
}

static PyObject *lock_acquire_restore(psb_lock_t *self, PyObject *count)
{
    unsigned long times = PyLong_AsUnsignedLong(count);

    if (times == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    lock_take(self, (unsigned)times, PSC_FOREVER, false);
    Py_RETURN_NONE;
}

/* In the child after a fork: a thread of the parent may hold the lock. */
static PyObject *lock_after_fork(psb_lock_t *self, PyObject *unused)
{
    (void)unused;
    if (!lock_owned(self)) {
        PyThread_type_lock fresh = PyThread_allocate_lock();

        if (!fresh)
            return PyErr_NoMemory();
        self->lock = fresh; /* the old one, in use, cannot be freed */
        self->count = 0;
    }
    Py_RETURN_NONE;
}

static PyObject *lock_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    psb_lock_t *self;

    if (PyTuple_GET_SIZE(args) || kwargs)
        return PyErr_Format(PyExc_TypeError, "Lock() takes no arguments");
    self = (psb_lock_t *)type->tp_alloc(type, 0);
    if (self && !(self->lock = PyThread_allocate_lock())) {
        Py_CLEAR(self);
        PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void lock_dealloc(psb_lock_t *self)
{
    PyTypeObject *type = Py_TYPE(self);

    if (self->lock)
        PyThread_free_lock(self->lock);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef lock_methods[] = {
    {"__enter__", PSB_FUNCTION(lock_enter), METH_NOARGS, NULL},
    {"__exit__", PSB_FUNCTION(lock_exit), METH_VARARGS, NULL},
    {"acquire", PSB_FUNCTION(lock_acquire), METH_VARARGS | METH_KEYWORDS,
     "acquire($self, blocking=True, timeout=None)\n--\n\n"
     "Take the lock. Returns False if another thread holds it for longer than\n"
     "`timeout` seconds, or if blocking is false."},
    {"release", PSB_FUNCTION(lock_exit), METH_NOARGS,
     "release($self)\n--\n\n"
     "Release the lock."},
    {"locked", PSB_FUNCTION(lock_locked), METH_NOARGS,
     "locked($self)\n--\n\n"
     "Return whether a thread holds the lock."},
    {"_exit_held", PSB_FUNCTION(lock_exit_held), METH_VARARGS,
     "For pscompy.api.c.guard.limited."},
    {"_is_owned", PSB_FUNCTION(lock_is_owned), METH_NOARGS,
     "For threading.Condition."},
    {"_release_save", PSB_FUNCTION(lock_release_save), METH_NOARGS,
     "For threading.Condition."},
    {"_acquire_restore", PSB_FUNCTION(lock_acquire_restore), METH_O,
     "For threading.Condition."},
    {"_after_fork", PSB_FUNCTION(lock_after_fork), METH_NOARGS,
     "_after_fork($self)\n--\n\n"
     "In the child after a fork: release the lock if a thread of the parent\n"
     "held it."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot lock_slots[] = {
    {Py_tp_doc, "Lock()\n--\n\n"
                "A lock that its thread may take again. While a thread holds "
                "one, it may not\nwait; see may_wait and when_outside. A "
                "context manager."},
    {Py_tp_new, lock_new},
    {Py_tp_dealloc, lock_dealloc},
    {Py_tp_methods, lock_methods},
    {0, NULL}};

PyType_Spec psb_lock_spec = {
    .name = "pscompy.api.c._binding.Lock",
    .basicsize = sizeof(psb_lock_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = lock_slots,
};

/* ---- NoWaiting ---- */

static PyObject *no_waiting_enter(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    here.n_no_waiting++;
    Py_RETURN_NONE;
}

static PyObject *no_waiting_exit(PyObject *self, PyObject *exception)
{
    (void)self;
    (void)exception;
    here.n_no_waiting--;
    Py_RETURN_NONE;
}

static void no_waiting_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef no_waiting_methods[] = {
    {"__enter__", no_waiting_enter, METH_NOARGS, NULL},
    {"__exit__", no_waiting_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyType_Slot no_waiting_slots[] = {
    {Py_tp_doc, "NoWaiting()\n--\n\n"
                "Within this context manager the calling thread may not wait, "
                "because others\nwait for it."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, no_waiting_dealloc},
    {Py_tp_methods, no_waiting_methods},
    {0, NULL}};

PyType_Spec psb_no_waiting_spec = {
    .name = "pscompy.api.c._binding.NoWaiting",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = no_waiting_slots,
};
