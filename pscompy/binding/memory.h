/* The type Memory: blocks of a worker's pool, and messages that were lent. */
#pragma once

#include "worker.h"

extern PyType_Spec psb_memory_spec;
/* Allocates a writable block of the worker's pool, or of the heap if the pool
 * has none. */
PyObject *psb_memory_alloc(psb_worker_t *worker, size_t nbytes);
/* As psb_memory_alloc, without waiting for a lock, for a message that has
 * matched. readonly: Python code cannot write to the memory. */
PyObject *psb_memory_receive(psb_worker_t *worker, size_t nbytes,
                             bool readonly);
/* Returns a Memory that shows the message of a matched receive in its sender's
 * memory. Returns NULL, without an exception, if the message has to be received
 * into a buffer. */
PyObject *psb_memory_view(psb_worker_t *worker, psc_request_t *matched);
void *psb_memory_base(PyObject *memory, Py_ssize_t *nbytes_p);
