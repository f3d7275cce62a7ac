/* The type Room: memory for one short message, used again for the next. A
 * receive without buffer takes a room. A short message arrives in the room and
 * completes the receive at once; for a longer message memory is allocated once
 * its length is known. */
#pragma once

#include "worker.h"

extern PyType_Spec psb_room_spec;
/* Takes a Room. Returns a new reference; NULL, without an exception, if too
 * many rooms are in use. */
PyObject *psb_room_take(psb_worker_t *worker);
/* Gives a Room back to the worker, with the reference. It is used again unless
 * somebody else has a reference, too. */
void psb_room_give(psb_worker_t *worker, PyObject *room);
psc_iov_t psb_room_piece(PyObject *room);
void psb_room_fill(PyObject *room, uint64_t nbytes);
/* Returns the bytes of the message in the Room, whose length psb_room_fill has
 * set. */
const char *psb_room_bytes(PyObject *room, Py_ssize_t *nbytes_p);
