/* The Request object: its fields, and its life from start to completion. */
#ifndef PSCOMPY_BINDING_REQUEST_LIFE_H
#define PSCOMPY_BINDING_REQUEST_LIFE_H

#include "op.h"

typedef struct psb_request {
    PyObject_HEAD psb_op_t op;     /* owns its worker and origin */
    bool flying;     /* in flight: the object lives until the op completes, */
    bool held; /* by a reference of its own once the program dropped it */
    bool offered; /* asyncio may have made a task of it */
    bool late; /* in flight without notification */
    bool finished; /* value or error is set, for good */
    bool cancelled; /* an event that its consumer cancelled */
    bool again; /* persistent: keeps its buffers for the next start */
    bool told; /* The program has seen that it completed. Until then a
                  receive can give its message back. */
    bool giving; /* a receive whose message is given back on completion */
    unsigned awaits; /* awaits that are suspended for it */
    PyObject *value, *error, *status;
    PyObject *callbacks; /* a list, or NULL */
} psb_request_t;

static inline psb_request_t *psb_request_of(psb_op_t *op)
{
    return psc_container_of(op, psb_request_t, op);
}

/* ---- start ---- */

/* Starts the op inside a new Request. */
PyObject *psb_request_post(psb_call_t *call, psb_op_t *op);
/* A Request that rests until psb_request_restart, for persistent.c. */
psb_request_t *psb_request_idle(PyTypeObject *type, psb_op_t *op);
int psb_request_restart(psb_request_t *self, psb_call_t *call);
/* A blocking op on the stack that could not be withdrawn becomes a Request,
 * which keeps the buffers until the core releases them. */
void psb_request_adopt(psb_op_t *op);

/* ---- completion ---- */

/* Returns true once the request has completed and its call-backs have run. */
bool psb_request_advance(psb_request_t *self);
/* Records that the program knows of the completion and may use the buffers. */
void psb_request_told(psb_request_t *self);
/* Returns or raises the result of wait() for a completed request. */
PyObject *psb_request_result(psb_request_t *self);
/* Completes an event. Returns false if it has completed already. */
bool psb_request_complete(psb_request_t *self, PyObject *value, PyObject *error,
                          psc_status_t status);
/* Cancels the request; an exception that is being raised stays. Returns false
 * if the operation is still in flight. */
bool psb_request_withdraw(psb_request_t *self);
/* The worker has ended with `status`, CLOSED or FORKED. */
void psb_request_abandon(psb_request_t *self, psc_status_t status);
/* Runs a call-back; its exceptions go to sys.unraisablehook. */
void psb_request_call(psb_request_t *self, PyObject *callback);

/* ---- the object's end ---- */

/* The program has dropped its last reference. */
void psb_request_finalize(PyObject *self);
static inline bool psb_request_survives(psb_request_t *self)
{
    return PSB_UNLIKELY(self->flying || self->offered) &&
           PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0;
}

#endif
