/* The buffers of one message: one object with a buffer, or a list of them. */
#pragma once

#include "readonly_lease.h"

/* Views of the buffer protocol, and the pieces of memory that they show. */
typedef struct psb_views {
    Py_buffer *view;
    psc_iov_t *pieces; /* NULL if in_room: see psb_buffers_t.piece */
    psc_layout_t *layout; /* the pieces are those of this layout; or NULL */
    uint64_t nbytes;
    uint32_t n;
    psb_lease_t *lease; /* of the object, if it is a lent array; or NULL */
    bool in_room;
} psb_views_t;

/* Room on the stack for one view, so that a blocking call allocates nothing. */
typedef struct psb_view_room {
    psb_views_t views;
    Py_buffer view;
} psb_view_room_t;

/* Small, because each outstanding request has one: `keeper` is an address whose
 * low bits say of what. */
typedef struct psb_buffers {
    psc_iov_t piece; /* if there is one */
    uintptr_t keeper; /* 0: no buffers */
} psb_buffers_t;

#define PSB_KEPT_BY_VIEWS 0u /* psb_views_t */
#define PSB_KEPT_BY_OWNER 1u /* PyObject: an array or bytes, of `piece` */
#define PSB_KEPT_BY_LEASE 2u /* psb_lease_t, of the array of `piece` */
#define PSB_KEPT_BY_EXPORT 3u /* PyObject: a bytearray, of `piece` */
#define PSB_KEPT_MASK 3u

static inline unsigned psb_buffers_kept_by(const psb_buffers_t *buffers)
{
    return buffers->keeper & PSB_KEPT_MASK;
}

static inline void *psb_buffers_keeper(const psb_buffers_t *buffers)
{
    return (void *)(buffers->keeper & ~(uintptr_t)PSB_KEPT_MASK);
}

/* The views, or NULL if an owner, a lease or an export keeps the memory. */
static inline psb_views_t *psb_buffers_views(const psb_buffers_t *buffers)
{
    return psb_buffers_kept_by(buffers) ? NULL : psb_buffers_keeper(buffers);
}

static inline void psb_buffers_init(psb_buffers_t *buffers)
{
    buffers->keeper = 0;
}

/* The number of pieces. */
static inline uint32_t psb_buffers_n(const psb_buffers_t *buffers)
{
    const psb_views_t *views = psb_buffers_views(buffers);

    return views ? views->n : buffers->keeper != 0;
}

static inline const psc_iov_t *psb_buffers_iov(const psb_buffers_t *buffers)
{
    return psb_buffers_n(buffers) > 1 ? psb_buffers_views(buffers)->pieces
                                      : &buffers->piece;
}

/* True if there is one object that is not contiguous. */
static inline bool psb_buffers_strided(const psb_buffers_t *buffers)
{
    const psb_views_t *views = psb_buffers_views(buffers);

    return views && views->layout;
}

static inline uint64_t psb_buffers_nbytes(const psb_buffers_t *buffers)
{
    const psb_views_t *views = psb_buffers_views(buffers);

    if (views)
        return views->nbytes;
    return buffers->keeper ? buffers->piece.len : 0;
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
/* Makes the array that the buffers show read-only until they are released; does
 * nothing for another object. Returns -1 with an exception. */
int psb_buffers_lend(psb_buffers_t *buffers, psb_state_t *state,
                     PyObject *object);
/* Moves the view out of its room, for buffers that outlive the call. */
int psb_buffers_keep(psb_buffers_t *buffers);
void psb_buffers_release(psb_buffers_t *buffers);
int psb_buffers_traverse(psb_buffers_t *buffers, visitproc visit, void *arg);
/* Any bytes-like object; `what` names it in the TypeError. */
int psb_bytes_get(Py_buffer *view, PyObject *object, const char *what);
