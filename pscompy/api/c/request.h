/* The Request object: its fields, its life from start to completion, its
 * methods; and the objects that stand on operations as it does. */
#pragma once

#include "operation.h"

/* ---- request_life.c ---- */

typedef struct psb_request {
    /* the Request owns references to op.worker and op.origin */
    PyObject_HEAD psb_op_t op;
    PyObject *outcome; /* the result, or the exception if op.failed */
    /* a reference, or NULL; psb_request_callbacks() and psb_request_status()
     * check which of the two it is */
    union {
        PyObject *callbacks; /* until op.finished: a list of functions */
        PyObject *status; /* once op.finished: a Status */
    } either;
} psb_request_t;

static inline PyObject **psb_request_callbacks(psb_request_t *self)
{
    psc_assert(!self->op.finished);
    return &self->either.callbacks;
}

static inline PyObject **psb_request_status(psb_request_t *self)
{
    psc_assert(self->op.finished);
    return &self->either.status;
}

/* Returns true if a call-back waits for the completion. */
static inline bool psb_request_watched(psb_request_t *self)
{
    return !self->op.finished && *psb_request_callbacks(self) &&
           PyList_GET_SIZE(*psb_request_callbacks(self)) > 0;
}

static inline psb_request_t *psb_request_of(psb_op_t *op)
{
    return psc_container_of(op, psb_request_t, op);
}

/* ---- start ---- */

/* Starts the operation of a call inside a new Request, and returns the
 * Request. */
PyObject *psb_request_post(psb_call_t *call);
/* Returns a new Request in the state completed, for persistent.c.
 * psb_request_restart() starts it. */
psb_request_t *psb_request_idle(PyTypeObject *type, psb_op_t *op);
/* Starts a completed request again, with the connection of the call. The core
 * may have to be waited for without the GIL; until it has the operation, the
 * request is completed for all other threads. */
int psb_request_restart(psb_request_t *self, psb_call_t *call);
/* Moves a blocking op that could not be withdrawn from the stack into a
 * Request. The Request keeps the buffers until the core releases them. */
void psb_request_adopt(psb_op_t *op);

/* ---- completion ---- */

/* Returns true once the request has completed and its call-backs have run, or
 * were put off until the thread has released its Locks (guard.h).
 * Returns false if a call-back has started it again. */
bool psb_request_advance(psb_request_t *self);
/* Records that the program knows of the completion, so that it may use the
 * buffers. */
void psb_request_mark_seen(psb_request_t *self);
/* Returns the result of a completed request, or raises its exception. Raises
 * RuntimeError if the request was started again meanwhile. */
PyObject *psb_request_result(psb_request_t *self);
/* Completes an event, a request of kind PSB_EVENT. Returns false if it has
 * completed already. */
bool psb_request_complete(psb_request_t *self, PyObject *value, PyObject *error,
                          psc_status_t status);
/* Cancels the request; an exception that is being raised stays raised. Returns
 * false if the operation is still in flight. */
bool psb_request_withdraw(psb_request_t *self);
/* Fails the request with `status`, because its worker has ended: CLOSED (after
 * close()) or FORKED (in a child process). */
void psb_request_abandon(psb_request_t *self, psc_status_t status);
/* Runs a call-back of the request, or puts it off while the calling thread
 * holds a Lock (guard.h); an exception that it raises goes to
 * sys.unraisablehook. */
void psb_request_call(psb_request_t *self, PyObject *callback);

/* ---- the object's end ---- */

/* Called when the program has dropped its last reference to the request. */
void psb_request_finalize(PyObject *self);
/* Called when the last call-back was removed. If the finalizer has run before,
 * only the request itself, and the caller for the moment, hold the request. */
void psb_request_unwatched(psb_request_t *self);
static inline bool psb_request_survives(psb_request_t *self)
{
    const psb_op_t *op = &self->op;

    return PSB_UNLIKELY(op->in_flight || op->awaitable ||
                        (psb_op_receives(op) && !op->seen)) &&
           PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0;
}

/* ---- request_refs.c ---- */

/* The slots of the types Request and PersistentRequest for the garbage
 * collector. These functions run also after the module's state was cleared, so
 * they use nothing of it. */

int psb_request_traverse(PyObject *self, visitproc visit, void *arg);
int psb_request_clear(PyObject *self);
void psb_request_dealloc(PyObject *self);

/* ---- waiting.c ---- */

/* Blocks until operations have completed. */

typedef enum psb_outcome {
    PSB_DONE,
    PSB_AGAIN, /* the wait has ended early: check the requests, wait again */
    PSB_TIMEOUT, /* the deadline has passed; no exception is set */
    /* a signal handler has raised an exception, or the worker was closed */
    PSB_RAISED
} psb_outcome_t;

psb_outcome_t psb_request_wait(psb_request_t *self, int64_t deadline);
/* Waits for the request in a thread that runs call-backs while the program
 * computes: it polls only while no other thread does. */
psb_outcome_t psb_request_wait_in_background(psb_request_t *self,
                                             psc_sleeper_t *sleeper,
                                             int64_t deadline);
/* Raises the TypeError for an argument of wait_all or wait_any that is no list
 * of requests. Returns NULL. */
PyObject *psb_wait_refuse(PyObject *object);
PyObject *psb_wait_all(psb_state_t *state, PyObject *requests, int64_t deadline,
                       PyObject *timeout);
PyObject *psb_wait_any(psb_state_t *state, PyObject *requests, int64_t deadline,
                       PyObject *timeout);
/* Blocks for an op on the stack. Returns true if op has completed. Otherwise an
 * exception is set, and if op is still in flight it has become a Request. */
bool psb_op_block(psb_op_t *op, int64_t deadline, PyObject *timeout);

/* ---- await.c ---- */

/* Awaits a Request. */

extern PyType_Spec psb_ended_spec;
/* The method Request.__await__(). */
PyObject *psb_request_await(psb_request_t *self);

/* ---- cancel.c ---- */

/* Methods of Request that withdraw the request. */

PyObject *psb_request_cancel(psb_request_t *self, PyObject *unused);
PyObject *psb_request_requeue(psb_request_t *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_request_revoke(psb_request_t *self, PyObject *unused);

/* ---- outcome.c ---- */

/* Methods of Request that report its completion, as futures have them. */

PyObject *psb_request_done(psb_request_t *self, PyObject *unused);
PyObject *psb_request_cancelled(psb_request_t *self, PyObject *unused);
/* Returns the error of a completed request, or None if it has succeeded. Raises
 * Cancelled if it was cancelled. */
PyObject *psb_request_error(psb_request_t *self);
PyObject *psb_request_on_done(psb_request_t *self, PyObject *fn);
PyObject *psb_request_add_done_callback(psb_request_t *self, PyObject *fn);
PyObject *psb_request_remove_done_callback(psb_request_t *self, PyObject *fn);

/* ---- persistent.c ---- */

/* The type PersistentRequest: an operation that a program describes once and
 * starts many times. */

extern PyType_Spec psb_persistent_spec;
/* Returns a PersistentRequest; each start of it makes this call. */
PyObject *psb_call_init(psb_call_t *call);
/* The same for a collective of a group that exists. */
PyObject *psb_collective_init(psb_call_t *call);

/* ---- message.c ---- */

/* The type Message: a message that a matched probe has taken off the queue of
 * arrived messages, and that is still to be received. */

extern PyType_Spec psb_message_spec;
/* Returns a Message that takes over the matched receive op->core. `op` is of
 * kind PSB_MATCH. */
PyObject *psb_message_new(psb_op_t *op);
