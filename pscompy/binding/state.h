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
 *  - A file includes headers of lower floors only; tests/test_floors.py has
 *    the floors. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "pscompy/core/control.h"

#define PSB_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* For a method table: the usual flags, and a cast of the function. */
#define PSB_FAST (METH_FASTCALL | METH_KEYWORDS)
#define PSB_FUNCTION(f) ((PyCFunction)(void (*)(void))(f))

#define PSB_STATE_OBJECTS 22

typedef struct psb_state {
    const psc_api_t *api;     /* NULL before bind() */
    struct psb_lease *leases; /* arrays that are lent */
    union {
        /* the references below, for the garbage collector */
        PyObject *objects[PSB_STATE_OBJECTS];
        struct {
            PyTypeObject *worker_type, *connection_type, *communicator_type;
            PyTypeObject *request_type, *persistent_type, *message_type;
            PyTypeObject *memory_type, *room_type, *sleeper_type;
            PyTypeObject *ended_type;  /* the iterator in await.c */
            PyTypeObject *status_type; /* the argument of bind() */
            /* Looked up on first use, see psb_import_once. */
            PyObject *from_status;     /* pscompy.errors.from_status */
            PyObject *cancelled_type;  /* pscompy.errors.Cancelled */
            PyObject *operation;       /* pscompy.api.awaited.operation */
            PyObject *timed_out;       /* pscompy.api.awaited.timed_out */
            PyObject *await_request;   /* pscompy.api.aio.await_request */
            PyObject *loop_callback;   /* pscompy.api.aio.loop_callback */
            PyObject *array_view;      /* pscompy.api.arrays.view */
            PyObject *dumps, *loads;   /* pickle.dumps, pickle.loads */
            PyObject *dumps_names; /* keyword names of the call of dumps */
            PyObject *leave; /* append() of an empty list, kept for the next
                                call of dumps; NULL while one uses it */
        };
    };
} psb_state_t;

_Static_assert(sizeof(psb_state_t) == (2 + PSB_STATE_OBJECTS) * sizeof(void *),
               "`objects` are all references");

/* *slot_p becomes module.name on first use, because asyncio and the error
 * classes take time to import. A borrowed reference, or NULL with an error. */
PyObject *psb_import_once(PyObject **slot_p, const char *module,
                          const char *name);
