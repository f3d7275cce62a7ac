/* The Request object: its fields, and its life from start to completion. */
#pragma once

#include "op.h"

typedef struct psb_request {
    PyObject_HEAD psb_op_t op; /* owns its worker and origin */
    PyObject *outcome; /* the value; the exception if op.failed */
    union {
        PyObject *callbacks; /* until op.finished: a list, or NULL */
        PyObject *status;    /* afterwards: a Status, or NULL */
    };
} psb_request_t;

static inline psb_request_t *psb_request_of(psb_op_t *op)
{
    return psc_container_of(op, psb_request_t, op);
}

/* ---- start ---- */

/* Starts the op inside a new Request. */
PyObject *psb_request_post(psb_call_t *call, psb_op_t *op);
/* Creates a completed Request, which psb_request_restart() starts, for
 * persistent.c. */
psb_request_t *psb_request_idle(PyTypeObject *type, psb_op_t *op);
int psb_request_restart(psb_request_t *self, psb_call_t *call);
/* A blocking op on the stack that could not be withdrawn becomes a Request,
 * which keeps the buffers until the core releases them. */
void psb_request_adopt(psb_op_t *op);

/* ---- completion ---- */

/* Returns true once the request has completed and its call-backs have run. */
bool psb_request_advance(psb_request_t *self);
/* Records that the program knows of the completion and may use the buffers. */
void psb_request_mark_seen(psb_request_t *self);
/* Returns or raises the result of wait() for a completed request. */
PyObject *psb_request_result(psb_request_t *self);
/* Completes an event. Returns false if it has completed already. */
bool psb_request_complete(psb_request_t *self, PyObject *value, PyObject *error,
                          psc_status_t status);
/* Cancels the request; an exception that is being raised stays. Returns false
 * if the operation is still in flight. */
bool psb_request_withdraw(psb_request_t *self);
/* Fails the request with `status`, CLOSED or FORKED: the worker has ended. */
void psb_request_abandon(psb_request_t *self, psc_status_t status);
/* Runs a call-back; its exceptions go to sys.unraisablehook. */
void psb_request_call(psb_request_t *self, PyObject *callback);

/* ---- the object's end ---- */

/* Called when the program has dropped its last reference to the request. */
void psb_request_finalize(PyObject *self);
static inline bool psb_request_survives(psb_request_t *self)
{
    return PSB_UNLIKELY(self->op.in_flight || self->op.offered) &&
           PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0;
}
