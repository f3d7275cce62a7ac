/* Blocks until operations have completed. */
#pragma once

#include "request_life.h"

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
