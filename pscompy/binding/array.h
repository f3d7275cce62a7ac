/* numpy arrays: as buffers of messages, and over memory of the core. */
#ifndef PSCOMPY_BINDING_ARRAY_H
#define PSCOMPY_BINDING_ARRAY_H

#include "worker.h"

/* Fills `piece` with the memory of a C-contiguous numpy array of plain numbers,
 * writable if asked for. Returns false for any other object; the buffer
 * protocol then says why. */
bool psb_array_get(psc_iov_t *piece, PyObject *object, bool writable);
/* A new array of bytes over a Memory, which it keeps alive. Imports numpy. */
PyObject *psb_array_view(PyObject *memory);
/* numpy.empty in the pool of a worker. */
PyObject *psb_array_empty(psb_worker_t *worker, PyObject *shape,
                          PyObject *dtype);
/* Returns whether the array was writable; false for any other object. */
bool psb_array_set_writable(PyObject *object, bool writable);

#endif
