/* numpy arrays: their memory as buffers of messages, arrays over memory of the
 * core, and arrays within objects that are pickled. */
#pragma once

#include "worker.h"

/* Fills `piece` with the memory of a C-contiguous numpy array of plain numbers,
 * which must be writable if `writable` is set. Returns false for any other
 * object; the caller then uses the buffer protocol, which says why an object
 * cannot be used. */
bool psb_array_get(psc_iov_t *piece, PyObject *object, bool writable);
/* Returns a new array of bytes over a Memory (memory.h), which the array keeps
 * alive. Imports numpy. */
PyObject *psb_array_view(PyObject *memory);
/* Like numpy.empty(), but with memory from the pool of a worker. `flags` are
 * those of psb_memory_alloc (memory.h). */
PyObject *psb_array_empty(psb_worker_t *worker, PyObject *shape,
                          PyObject *dtype, uint32_t flags);
/* Returns a function for pickle's dispatch table, which maps an array to
 * `restore` and the arguments with which `restore` makes an equal array. The
 * data of arrays of fewer than `copied` bytes is copied, that of others is
 * passed as a PickleBuffer. */
PyObject *psb_array_reducer(PyObject *restore, Py_ssize_t copied);
/* Returns an array of this type and shape over the memory of `numbers`, in the
 * order "C" or "F", or in the order "C" if `order` is NULL. Returns NULL with
 * an exception if the length of `numbers` does not fit. */
PyObject *psb_array_restore(PyObject *numbers, PyObject *kind, PyObject *shape,
                            PyObject *order);
/* Makes an array writable or read-only. Returns whether it was writable before,
 * or false if `object` is no array. */
bool psb_array_set_writable(PyObject *object, bool writable);
