/* numpy arrays: as buffers of messages, over memory of the core, and within
 * objects that are pickled. */
#pragma once

#include "worker.h"

/* Fills `piece` with the memory of a C-contiguous numpy array of plain numbers,
 * writable if asked for. Returns false for any other object; the buffer
 * protocol then says why. */
bool psb_array_get(psc_iov_t *piece, PyObject *object, bool writable);
/* Returns a new array of bytes over a Memory, which the array keeps alive.
 * Imports numpy. */
PyObject *psb_array_view(PyObject *memory);
/* numpy.empty in the pool of a worker. */
PyObject *psb_array_empty(psb_worker_t *worker, PyObject *shape,
                          PyObject *dtype);
/* A function for pickle's dispatch table: it returns `restore`, and the
 * arguments with which that makes an equal array. The data of arrays of fewer
 * than `copied` bytes is copied, that of others is passed as a PickleBuffer. */
PyObject *psb_array_reducer(PyObject *restore, Py_ssize_t copied);
/* Returns an array of this type and shape over the memory of `numbers`, in the
 * order "C" or "F"; NULL is "C". Returns NULL with an exception unless the
 * numbers fit. */
PyObject *psb_array_restore(PyObject *numbers, PyObject *kind, PyObject *shape,
                            PyObject *order);
/* Returns whether the array was writable; false for any other object. */
bool psb_array_set_writable(PyObject *object, bool writable);
