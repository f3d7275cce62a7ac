/* The layout (shape and strides) of a buffer that is not contiguous, in the
 * form that the core uses. */
#pragma once

#include "worker.h"

/* Returns the layout of a view that is not C-contiguous; the caller frees the
 * layout with PyMem_Free. Returns NULL with MemoryError, or with BufferError if
 * `writable` is set and elements share memory. */
psc_layout_t *psb_layout_new(const Py_buffer *view, bool writable);
