/* The buffers of one message: one object with a buffer, or a list of them. */
#pragma once

#include "state.h"

/* ---- readonly_lease.c ---- */

/* Leases: numpy arrays are read-only while they are lent to a receiver. */

typedef struct psb_lease psb_lease_t;
/* Makes an array read-only until psb_lease_end() has been called as often as
 * this function. *lease_p becomes NULL if the object is no array, or is
 * read-only already and not lent. Returns -1 with an exception. */
int psb_lease_begin(psb_state_t *state, PyObject *object,
                    psb_lease_t **lease_p);
void psb_lease_end(psb_lease_t *lease);
/* Returns the array, for the garbage collector: each loan has a reference. */
PyObject *psb_lease_array(const psb_lease_t *lease);

/* ---- buffers.c ---- */

/* Views of the buffer protocol, and the pieces of memory that they show. */
typedef struct psb_views {
    Py_buffer *view;
    /* NULL if the view is in a psb_view_storage_t (`in_storage`), because then
     * psb_buffers_t.piece is the only piece */
    psc_iov_t *pieces;
    /* the layout (strides) of memory that is not contiguous, encoded in
     * `pieces`; else NULL */
    psc_layout_t *layout;
    uint64_t nbytes;
    uint32_t n;
    /* the lease of the object, if it is an array that is lent; else NULL */
    psb_lease_t *lease;
    bool in_storage;
} psb_views_t;

/* Memory on the stack for one view, so that a blocking call allocates
 * nothing. */
typedef struct psb_view_storage {
    psb_views_t views;
    Py_buffer view;
} psb_view_storage_t;

/* The memory of one message, and the object that keeps the memory valid. Small,
 * because each outstanding request has one: `keeper` is the address of that
 * object, and its low bits, PSB_KEPT_BY_..., tell the kind of the object. */
typedef struct psb_buffers {
    psc_iov_t piece; /* the memory, if it is one contiguous piece */
    /* address of the object that keeps the memory valid, and the kind of the
     * object; 0: there are no buffers */
    uintptr_t keeper;
} psb_buffers_t;

#define PSB_KEPT_BY_VIEWS 0u /* keeper is the psb_views_t */
/* keeper is the array or bytes object that has the memory `piece` */
#define PSB_KEPT_BY_OWNER 1u
/* keeper is the psb_lease_t of the array that has the memory `piece` */
#define PSB_KEPT_BY_LEASE 2u
/* keeper is the bytearray that has the memory `piece`; its count of exports is
 * raised, so that it cannot be resized */
#define PSB_KEPT_BY_EXPORT 3u
#define PSB_KEPT_MASK 3u

static inline unsigned psb_buffers_kept_by(const psb_buffers_t *buffers)
{
    return buffers->keeper & PSB_KEPT_MASK;
}

static inline void *psb_buffers_keeper(const psb_buffers_t *buffers)
{
    return (void *)(buffers->keeper & ~(uintptr_t)PSB_KEPT_MASK);
}

/* Returns the views, or NULL if `keeper` is an object or a lease. */
static inline psb_views_t *psb_buffers_views(const psb_buffers_t *buffers)
{
    return psb_buffers_kept_by(buffers) ? NULL : psb_buffers_keeper(buffers);
}

static inline void psb_buffers_init(psb_buffers_t *buffers)
{
    buffers->keeper = 0;
}

/* Returns the number of pieces of memory that the message has. */
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

/* Returns true if the message is in one object whose memory is not
 * contiguous. */
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

/* The requirements of a call on its buffers. */
typedef struct psb_needs {
    bool writable;
    /* a single object must be C-contiguous, as each object of a list must be */
    bool contiguous;
} psb_needs_t;

/* Gets the buffers of an object or a list. Returns -1 with a TypeError if an
 * object has no buffer, or has Python objects in its buffer. Returns -1 with a
 * BufferError if the object is not as `needs` says, or if an object in a list
 * of several is not C-contiguous. */
int psb_buffers_get(psb_buffers_t *buffers, PyObject *object, psb_needs_t needs,
                    psb_view_storage_t *storage);
/* Makes the array that the buffers show, alone or as the only one of a list,
 * read-only until they are released; does nothing for another object. Returns
 * -1 with an exception. */
int psb_buffers_lend(psb_buffers_t *buffers, psb_state_t *state);
/* Moves the view from its psb_view_storage_t on the stack to the heap, for
 * buffers that outlive the call. */
int psb_buffers_keep(psb_buffers_t *buffers);
void psb_buffers_release(psb_buffers_t *buffers);
int psb_buffers_traverse(psb_buffers_t *buffers, visitproc visit, void *arg);
/* Gets a view of any bytes-like object; `what` names it in the TypeError. */
int psb_bytes_get(Py_buffer *view, PyObject *object, const char *what);

/* ---- strided.c ---- */

/* The layout (shape and strides) of a buffer that is not contiguous, in the
 * form that the core uses. */

/* Returns the layout of a view that is not C-contiguous; the caller frees the
 * layout with PyMem_Free. Returns NULL with MemoryError, or with BufferError if
 * `writable` is set and elements share memory. */
psc_layout_t *psb_layout_new(const Py_buffer *view, bool writable);
