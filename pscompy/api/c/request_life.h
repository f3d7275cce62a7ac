/* The Request object: its fields, and its life from start to completion. */
#pragma once

#include "call.h"

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
