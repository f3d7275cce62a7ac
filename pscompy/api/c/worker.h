/* The Worker object: a worker of the core, as Python sees it. */
#pragma once

#include "state.h"
#include "pscompy/transport/kit/table.h"

#define PSB_ROOMS_KEPT 16u

/* Whether an await polls before it suspends its task (await.c). */
typedef struct psb_patience {
    /* time (psc_clock_now) at which a task last yielded to the loop, or began a
     * series of awaits that do not suspend; 0 after an await has suspended */
    int64_t turn;
    /* number of awaits that skip polling after a poll that found nothing; grows
     * with each such poll */
    unsigned backoff;
    unsigned skip; /* how many of the next awaits skip polling */
} psb_patience_t;

/* A completed request of the core that threads still wait for, although its op
 * has begun again. The last of these threads frees it (operation.h). */
typedef struct psb_left {
    psc_link_t link; /* in the list `left` of the worker */
    psc_request_t *core;
    unsigned waiters;
} psb_left_t;

typedef struct psb_worker {
    PyObject_HEAD psb_state_t *state;
    PyObject *module; /* the module object, which owns `state` */
    const psc_api_t *api;
    psc_worker_t *core;
    /* PSC_OK; PSC_ERR_CLOSED or PSC_ERR_FORKED once the worker has ended */
    psc_status_t status;
    psc_list_t ops; /* list of the psb_op_t that the core knows */
    psc_list_t left; /* list of psb_left_t */
    /* requests whose completion the core does not report
     * (psb_op_t.unnotified) */
    unsigned n_unnotified;
    /* number of threads that are in a call of the core without the GIL */
    unsigned n_inside;
    /* number of calls of psb_worker_drain that are running, in any thread */
    unsigned n_draining;
    psb_patience_t patience;
    /* The dictionaries id -> Connection, from Worker.retain() to
     * Worker.release(), and id -> handler of active messages, or weak
     * references to them (belong_to); see psb_worker_held. */
    PyObject *connections, *handlers;
    PyObject *owner; /* weak reference to the session, or NULL */
    /* the Status that was made last in a World, or NULL (result.c) */
    PyObject *status_kept;
    psc_result_t status_result; /* the result from which status_kept was made */
    /* Rooms (memory for one short message each; memory.h) that no receive
     * has taken */
    PyObject *rooms[PSB_ROOMS_KEPT];
    unsigned n_rooms; /* number of Rooms in `rooms` */
    unsigned n_rooms_out; /* number of Rooms that receives have taken */
    psc_table_t numberings; /* of psb_numbering_t, by context; rank_map.c */
} psb_worker_t;

/* Returns a new reference to the object that `held` is, or refers to weakly;
 * NULL, without an exception, if that is gone or `held` is NULL. */
static inline PyObject *psb_worker_held(PyObject *held)
{
    PyObject *found = held;

    if (!held || !PyWeakref_Check(held))
        return Py_XNewRef(held);
#if PY_VERSION_HEX >= 0x030D0000
    if (PyWeakref_GetRef(held, &found) < 0)
        PyErr_Clear();
    return found;
#else
    found = PyWeakref_GET_OBJECT(held);
    return found == Py_None ? NULL : Py_NewRef(found);
#endif
}

/* ---- completion.c ---- */

/* Delivers to Python what the core has completed. */

/* Runs psb_worker_drain() if something has completed. Returns 0 if the worker
 * is open, else -1 with an exception, which origin._exception() makes unless
 * `origin` is NULL. */
int psb_worker_enter(psb_worker_t *self, PyObject *origin);
/* Runs the call-backs of completed requests, and the handlers of active
 * messages that have arrived. */
void psb_worker_drain(psb_worker_t *self);

/* ---- rank_map.c ---- */

/* Worlds that have some of the ranks of another World and number them anew. */

/* Returns the rank that the World with this context (the number that separates
 * its messages) gives to the peer that the core knows as `rank`. */
int psb_worker_rank(const psb_worker_t *self, uint32_t context, int rank);
/* Let Status.source of messages of this context be the index in `members` of
 * the rank that sent them. Returns None, or NULL with an exception. */
PyObject *psb_worker_renumber(psb_worker_t *self, uint32_t context,
                              PyObject *members);
void psb_worker_forget_numbering(psb_worker_t *self, uint32_t context);
void psb_worker_forget_numberings(psb_worker_t *self);

/* ---- worker_end.c ---- */

/* Methods of Worker that end the worker. */

PyObject *psb_worker_close(psb_worker_t *self, PyObject *destroy);
PyObject *psb_worker_forked(psb_worker_t *self, PyObject *unused);

/* ---- sleeper.c ---- */

/* The type Sleeper: a descriptor that one thread sleeps on. */

extern PyType_Spec psb_sleeper_spec;
/* Creates a Sleeper of a worker that is open. */
PyObject *psb_sleeper_create(psb_worker_t *worker);
