/* The Request object: its fields, and its life from start to completion. */
#ifndef PSCOMPY_BINDING_REQUEST_LIFE_H
#define PSCOMPY_BINDING_REQUEST_LIFE_H

#include "op.h"

typedef struct psb_request {
    PyObject_HEAD psb_op_t op;     /* owns its worker and origin */
    unsigned awaits; /* awaits that are suspended for it */
    bool finished; /* value or error is set, for good */
    bool in_flight : 1; /* the object is kept alive until the op completes */
    bool self_reference : 1; /* it holds a reference to itself, because the
                                program has dropped its last one */
    bool offered : 1; /* asyncio may have wrapped the request in a task */
    bool unnotified : 1; /* the core does not report its completion */
    bool cancelled : 1; /* an event that its consumer cancelled */
    bool persistent : 1; /* keeps its buffers for the next start */
    bool seen : 1; /* The program has seen that it completed. Until then a
                      receive can give its message back. */
    bool giving_back : 1; /* a receive whose message is given back on
                             completion */
    PyObject *value, *error;
    union {
        PyObject *callbacks; /* until it is finished: a list, or NULL */
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
/* A completed Request that psb_request_restart() starts, for persistent.c. */
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
    return PSB_UNLIKELY(self->in_flight || self->offered) &&
           PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0;
}

#endif
