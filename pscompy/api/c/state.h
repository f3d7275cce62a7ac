/* The extension's state, one per module object, and what every file here
 * shares.
 *
 * Rules that hold for every file of this folder:
 *  - All state of this extension is guarded by the GIL. psc_api_t is called
 *    with the GIL only where that never waits for the network; PSC_FLAG_TRY
 *    keeps a call from waiting for a lock that another thread holds.
 *  - The core never calls Python. psb_worker_drain picks up what the core has
 *    completed, outside the core's lock.
 *  - An operation that does not complete at once is a psb_op_t. Every op that
 *    the core knows is in its worker's list, so that closing the worker can
 *    complete it.
 *  - The state lives as long as the last Worker, which has a reference to the
 *    module. But the collector may have cleared the references in it before
 *    other objects: functions for tp_traverse, tp_clear, tp_dealloc and
 *    tp_finalize do not use these references.
 *  - A file calls functions of files on lower floors (levels of dependency)
 *    only; tests/test_floors.py has the floors. The headers are rooms, in this
 *    order: state.h, guard.h, worker.h, memory.h, buffers.h, operation.h,
 *    connection.h and request.h. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "pscompy/core/control.h"
#include "pscompy/transport/kit/clock.h"

#define PSB_LIKELY(x) __builtin_expect(!!(x), 1)
#define PSB_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* For a function that messages do not call: it is not inlined into those that
 * they call. */
#define PSB_COLD __attribute__((cold, noinline))

/* For a method table: the usual flags of a method, and a cast of its
 * function. */
#define PSB_FAST (METH_FASTCALL | METH_KEYWORDS)
#define PSB_FUNCTION(f) ((PyCFunction)(void (*)(void))(f))

#define PSB_STATE_OBJECTS 22

typedef struct psb_state {
    /* the core's table of functions; NULL until the module's function bind() is
     * called */
    const psc_api_t *api;
    /* list of the leases (buffers.h) of arrays that are lent to receivers */
    struct psb_lease *leases;
    union {
        /* all references below, in the same memory, for the garbage
         * collector */
        PyObject *objects[PSB_STATE_OBJECTS];
        struct {
            PyTypeObject *worker_type, *connection_type, *communicator_type;
            PyTypeObject *request_type, *persistent_type, *message_type;
            PyTypeObject *memory_type, *room_type, *sleeper_type;
            PyTypeObject *ended_type; /* psb_ended_t, the iterator in await.c */
            /* pscompy's Status, an argument of the module's function bind() */
            PyTypeObject *status_type;
            /* Looked up on first use, see psb_import_once. */
            PyObject *from_status; /* pscompy.errors.from_status */
            PyObject *cancelled_type; /* pscompy.errors.Cancelled */
            PyObject *operation; /* pscompy.api.awaited.operation */
            PyObject *timed_out; /* pscompy.api.awaited.timed_out */
            PyObject *await_request; /* pscompy.api.aio.await_request */
            PyObject *loop_callback; /* pscompy.api.aio.loop_callback */
            PyObject *array_viewer; /* pscompy.api.arrays.viewer */
            PyObject *dumps, *loads; /* pickle.dumps, pickle.loads */
            /* tuple of the keyword names with which pickle.dumps is called */
            PyObject *dumps_names;
            /* append() of an empty list, kept for the next call of
             * pickle.dumps; NULL while a call uses it */
            PyObject *leave;
        };
    };
} psb_state_t;

_Static_assert(sizeof(psb_state_t) == (2 + PSB_STATE_OBJECTS) * sizeof(void *),
               "`objects` are all references");

/* Returns *slot_p, which becomes module.name on first use, because asyncio and
 * the error classes take time to import. Returns a borrowed reference, or NULL
 * with an error. */
PyObject *psb_import_once(PyObject **slot_p, const char *module,
                          const char *name);

/* ---- the types of module.c ---- */

/* The value of `source` in a receive from any rank. It is not -1, because a
 * rank that a program computes wrongly must raise IndexError. */
#define PSB_ANY_SOURCE INT32_MIN

extern PyType_Spec psb_worker_spec, psb_connection_spec, psb_communicator_spec;
extern PyType_Spec psb_request_spec;

/* ---- args.c ---- */

/* Arguments of methods, parsed without allocation. */

#define PSB_ARGS_MAX 7

typedef struct psb_signature {
    const char *function;
    int required;
    int n;
    const char *names[PSB_ARGS_MAX];
} psb_signature_t;

/* Parses a method's arguments. given[i] becomes a borrowed reference to the
 * argument with name i of the signature, or NULL if it was not given. */
int psb_args_parse(const psb_signature_t *signature, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, PyObject **given);
/* The functions psb_arg_*() do not change the value if `object` is NULL (an
 * argument that was not given). */
int psb_arg_tag(PyObject *object, bool any, int32_t *tag_p);
int psb_arg_u64(PyObject *object, const char *name, uint64_t max,
                uint64_t *value_p);
/* Raises an exception whose text shows `object`, in place of the "%%U" in the
 * format, which is otherwise one of PyErr_Format. An object that has no repr,
 * such as a number of too many digits, is shown as its type. The exception
 * replaces one that is set. Returns -1. */
int psb_refuse(PyObject *type, PyObject *object, const char *format, ...);
/* Converts a timeout of Python (None, or seconds) to a deadline (as of
 * psc_clock_now). */
int psb_arg_deadline(PyObject *object, int64_t *deadline_p);

/* ---- errors.c ---- */

/* Exceptions for statuses of the core, and exceptions that are set aside while
 * other code runs. */

/* Returns the exception for a status of the core: origin._exception(status,
 * nbytes), or that of pscompy.errors.from_status if origin is NULL. Returns a
 * new reference, or NULL. */
PyObject *psb_exception(psb_state_t *state, PyObject *origin, int status,
                        uint64_t nbytes);
/* The default of the method _exception(status, nbytes) of Connection and
 * World. */
PyObject *psb_default_exception(psb_state_t *state, PyObject *const *args,
                                Py_ssize_t n_args);
/* Raises the exception that psb_exception() returns; always returns NULL. */
PyObject *psb_raise(psb_state_t *state, PyObject *origin, int status,
                    uint64_t nbytes);

/* The bytes that a put or a get asked for, and the size of the peer's
 * region. */
typedef struct psb_bounds {
    uint64_t offset, nbytes, size;
} psb_bounds_t;
PyObject *psb_raise_bounds(psb_state_t *state, PyObject *origin,
                           const psb_bounds_t *bounds);
/* An exception that was set aside, to be raised again later. */
typedef struct psb_raised {
    PyObject *type, *value, *traceback;
} psb_raised_t;
psb_raised_t psb_raised_take(void);
void psb_raised_restore(psb_raised_t raised);
/* Returns the exception that is raised now, without its type and traceback;
 * clears Python's error indicator. */
PyObject *psb_raised_instance(void);
