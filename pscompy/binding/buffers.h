/* The buffers of one message: one object with a buffer, or a list of them. */
#ifndef PSCOMPY_BINDING_BUFFERS_H
#define PSCOMPY_BINDING_BUFFERS_H

#include "readonly_lease.h"

typedef struct psb_buffers {
    Py_buffer view; /* if n == 1 */
    psc_iov_t piece;
    Py_buffer *views; /* arrays of n elements, if n != 1 */
    psc_iov_t *pieces;
    size_t n;
    uint64_t nbytes;
    psb_lease_t *lease; /* of a lent array, until psb_buffers_release; or
                           NULL */
} psb_buffers_t;

static inline void psb_buffers_init(psb_buffers_t *buffers)
{
    buffers->n = 0;
    buffers->nbytes = 0;
    buffers->views = NULL;
    buffers->pieces = NULL;
    buffers->lease = NULL;
}

static inline const psc_iov_t *psb_buffers_iov(const psb_buffers_t *buffers)
{
    return buffers->n == 1 ? &buffers->piece : buffers->pieces;
}

/* Returns -1 with TypeError (no buffer, or Python objects in it) or
 * BufferError (not C-contiguous, or read-only where it must be writable). */
int psb_buffers_get(psb_buffers_t *buffers, PyObject *object, bool writable);
void psb_buffers_release(psb_buffers_t *buffers);
int psb_buffers_traverse(psb_buffers_t *buffers, visitproc visit, void *arg);
/* Any bytes-like object; `what` names it in the TypeError. */
int psb_bytes_get(Py_buffer *view, PyObject *object, const char *what);

#endif
