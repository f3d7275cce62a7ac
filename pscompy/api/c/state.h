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
 *  - A file includes headers of lower floors (levels of dependency) only;
 *    tests/test_floors.py has the floors. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "pscompy/core/control.h"

#define PSB_LIKELY(x) __builtin_expect(!!(x), 1)
#define PSB_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* For a method table: the usual flags of a method, and a cast of its
 * function. */
#define PSB_FAST (METH_FASTCALL | METH_KEYWORDS)
#define PSB_FUNCTION(f) ((PyCFunction)(void (*)(void))(f))

#define PSB_STATE_OBJECTS 22

typedef struct psb_state {
    /* the core's table of functions; NULL until the module's function bind() is
     * called */
    const psc_api_t *api;
    /* list of the leases (readonly_lease.h) of arrays that are lent to
     * receivers */
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
