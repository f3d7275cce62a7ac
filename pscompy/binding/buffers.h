/* The buffers of one message: one object with a buffer, or a list of them. */
#ifndef PSCOMPY_BINDING_BUFFERS_H
#define PSCOMPY_BINDING_BUFFERS_H

#include "readonly_lease.h"

/* Views of the buffer protocol, and the pieces of memory that they show. */
typedef struct psb_views {
    Py_buffer *view;
    psc_iov_t *pieces;
    psc_layout_t *layout; /* `strided`: pieces are those of the layout */
    uint64_t nbytes;
    bool in_room;
} psb_views_t;

/* Room on the stack for one view, so that a blocking call allocates nothing. */
typedef struct psb_view_room {
    psb_views_t views;
    Py_buffer view;
    psc_iov_t piece;
} psb_view_room_t;

typedef struct psb_buffers {
    psc_iov_t piece; /* if n == 1 */
    union {
        PyObject *owner; /* `owned`: an array or bytes, of `piece` */
        psb_views_t *views; /* of all other objects; or NULL */
    };
    psb_lease_t *lease; /* of a lent array, until psb_buffers_release; or
                           NULL */
    uint32_t n;
    bool owned; /* a reference keeps the memory in its place */
    bool strided; /* one object that is not contiguous */
} psb_buffers_t;

static inline void psb_buffers_init(psb_buffers_t *buffers)
{
    buffers->views = NULL;
    buffers->lease = NULL;
    buffers->n = 0;
    buffers->owned = buffers->strided = false;
}

static inline const psc_iov_t *psb_buffers_iov(const psb_buffers_t *buffers)
{
    return buffers->n > 1 ? buffers->views->pieces : &buffers->piece;
}

static inline uint64_t psb_buffers_nbytes(const psb_buffers_t *buffers)
{
    if (buffers->n > 1)
        return buffers->views->nbytes;
    return buffers->n ? buffers->piece.len : 0;
}

/* Conditions on buffers. */
typedef struct psb_needs {
    bool writable;
    bool contiguous; /* also of a single object */
} psb_needs_t;

/* Returns -1 with TypeError (no buffer, or Python objects in it) or
 * BufferError (the object is not as needed, or an object of several is not
 * C-contiguous). */
int psb_buffers_get(psb_buffers_t *buffers, PyObject *object, psb_needs_t needs,
                    psb_view_room_t *room);
/* Moves the view out of its room, for buffers that outlive the call. */
int psb_buffers_keep(psb_buffers_t *buffers);
void psb_buffers_release(psb_buffers_t *buffers);
int psb_buffers_traverse(psb_buffers_t *buffers, visitproc visit, void *arg);
/* Any bytes-like object; `what` names it in the TypeError. */
int psb_bytes_get(Py_buffer *view, PyObject *object, const char *what);

#endif
