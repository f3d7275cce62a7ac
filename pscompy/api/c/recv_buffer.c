/* The type Room, memory for one short message. A message that does not fit into
 * a Room gets memory of its own. */
#include "memory.h"

#define ROOM_BYTES 1024
/* Maximum number of Rooms that posted receives have at a time. Without this
 * limit a program that posts very many receives would use memory that it may
 * not need. */
#define ROOMS_OUT_MAX 256u

typedef struct psb_room {
    PyObject_HEAD Py_ssize_t nbytes; /* length of the message in `bytes` */
    char bytes[ROOM_BYTES];
} psb_room_t;

PyObject *psb_room_take(psb_worker_t *worker)
{
    PyObject *room;

    if (worker->n_rooms_out >= ROOMS_OUT_MAX)
        return NULL;
    if (worker->n_rooms > 0)
        room = worker->rooms[--worker->n_rooms];
    else
        room = (PyObject *)PyObject_New(psb_room_t, worker->state->room_type);
    if (room)
        worker->n_rooms_out++;
    else
        PyErr_Clear(); /* the message then gets memory of its own */
    return room;
}

void psb_room_give(psb_worker_t *worker, PyObject *room)
{
    worker->n_rooms_out--;
    if (worker->n_rooms < PSB_ROOMS_KEPT && Py_REFCNT(room) == 1)
        worker->rooms[worker->n_rooms++] = room;
    else
        Py_DECREF(room);
}

psc_iov_t psb_room_piece(PyObject *room)
{
    return (psc_iov_t){((psb_room_t *)room)->bytes, ROOM_BYTES};
}

void psb_room_fill(PyObject *room, uint64_t nbytes)
{
    ((psb_room_t *)room)->nbytes = (Py_ssize_t)nbytes;
}

const char *psb_room_bytes(PyObject *room, Py_ssize_t *nbytes_p)
{
    *nbytes_p = ((psb_room_t *)room)->nbytes;
    return ((psb_room_t *)room)->bytes;
}

static int room_getbuffer(psb_room_t *self, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, (PyObject *)self, self->bytes, self->nbytes,
                             true, flags);
}

static void room_dealloc(psb_room_t *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot room_slots[] = {
    {Py_tp_doc, "The memory of one short message that has arrived."},
    {Py_tp_dealloc, room_dealloc},
    {Py_bf_getbuffer, room_getbuffer},
    {0, NULL}};

PyType_Spec psb_room_spec = {
    .name = "pscompy.api.c._binding.Room",
    .basicsize = sizeof(psb_room_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = room_slots,
};
