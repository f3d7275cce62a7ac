/* The type Memory: blocks of a worker's pool, and messages that their sender
 * has lent (proto/lend.h). */
#pragma once

#include "worker.h"

extern PyType_Spec psb_memory_spec;
/* Allocates a writable Memory of `nbytes` bytes: a block of the worker's pool,
 * or heap memory if the pool has none. `flags` is PSC_FLAG_PRIVATE, or 0 for
 * memory that can be lent. */
PyObject *psb_memory_alloc(psb_worker_t *worker, size_t nbytes, uint32_t flags);
/* Like psb_memory_alloc, but private memory for a message whose receive has
 * matched, and without waiting for a lock. If `readonly` is set, Python code
 * cannot write to the memory. */
PyObject *psb_memory_receive(psb_worker_t *worker, size_t nbytes,
                             bool readonly);
/* Returns a read-only Memory of no bytes, for psb_memory_show(). Making it may
 * run finalizers. */
PyObject *psb_memory_empty(psb_worker_t *worker);
/* Makes the empty Memory show the message of a matched receive in its sender's
 * memory. Returns false if the message has to be received into a buffer
 * instead. */
bool psb_memory_show(PyObject *memory, psc_request_t *matched);
void *psb_memory_base(PyObject *memory, Py_ssize_t *nbytes_p);
