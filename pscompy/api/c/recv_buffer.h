/* The type Room: memory for one short message, which is used again for the next
 * one. A receive without buffer takes a Room. A short message arrives in the
 * Room and completes the receive at once; for a longer message memory is
 * allocated once its length is known. */
#pragma once

#include "worker.h"

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
