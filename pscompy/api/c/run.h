/* Runs a call (psb_call_t, a method's arguments) and makes the value that the
 * method returns. */
#pragma once

#include "call.h"

typedef PyObject *(*psb_runner_t)(psb_call_t *call);

/* Begins to open a lazy connection (one that is opened at its first use) and
 * delivers what has completed, before anything is handed to the core, because
 * both may run Python code. */
int psb_call_enter(psb_call_t *call);
PyObject *psb_call_run(psb_call_t *call);
/* Receives a message as an array (PSB_RECV_VIEW). If the call names a type or
 * shape, checks that the length of the message fits. */
PyObject *psb_call_view(psb_call_t *call);
PyObject *psb_call_iprobe(psb_call_t *call);
PyObject *psb_call_improbe(psb_call_t *call);
/* Sends and receives at the same time. The deadline of `send` applies to both
 * operations. */
PyObject *psb_call_sendrecv(psb_call_t *send, psb_call_t *recv);
