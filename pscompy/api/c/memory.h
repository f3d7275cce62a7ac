/* Memory for messages: blocks of a worker's pool, Rooms, and numpy arrays. */
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

/* ---- recv_buffer.c ---- */

/* The type Room: memory for one short message, which is used again for the next
 * one. A receive without buffer takes a Room. A short message arrives in the
 * Room and completes the receive at once; for a longer message memory is
 * allocated once its length is known. */

extern PyType_Spec psb_room_spec;
/* Takes a Room of the worker. Returns a new reference, or NULL, without an
 * exception, if too many Rooms are in use. */
PyObject *psb_room_take(psb_worker_t *worker);
/* Gives a Room and the reference to it back to the worker. The Room is used
 * again unless there is another reference to it. */
void psb_room_give(psb_worker_t *worker, PyObject *room);
psc_iov_t psb_room_piece(PyObject *room);
void psb_room_fill(PyObject *room, uint64_t nbytes);
/* Returns the bytes of the message in the Room. psb_room_fill has set the
 * message's length. */
const char *psb_room_bytes(PyObject *room, Py_ssize_t *nbytes_p);

/* ---- array.c ---- */

/* numpy arrays: their memory as buffers of messages, arrays over memory of the
 * core, and arrays within objects that are pickled. */

/* Fills `piece` with the memory of a C-contiguous numpy array of plain numbers,
 * which must be writable if `writable` is set. Returns false for any other
 * object; the caller then uses the buffer protocol, which says why an object
 * cannot be used. */
bool psb_array_get(psc_iov_t *piece, PyObject *object, bool writable);
/* A C-contiguous and aligned numpy array of plain numbers. */
typedef struct psb_plain {
    psc_iov_t memory;
    size_t size; /* bytes of an element */
    Py_ssize_t items; /* of axis 0; -1 without axes */
    int type; /* a psc_type_t; -1 if it has none */
} psb_plain_t;
/* Describes an array, which must be writable if `writable` is set. Returns
 * false for any other object. */
bool psb_array_plain(psb_plain_t *plain, PyObject *object, bool writable);
/* Returns a new array of bytes over a Memory, which the array keeps
 * alive. Imports numpy. */
PyObject *psb_array_view(PyObject *memory);
/* Like numpy.empty(), but with memory from the pool of a worker. `flags` are
 * those of psb_memory_alloc. */
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
