/* The memory of a message: pieces, and strides. */
#pragma once

#include "pscompy/transport/kit/iov.h"
#include "api.h"

/* ---- pieces.c ---- */

/* The pieces of a request's memory. */

/* Copy a flat buffer into the pieces, beginning at `offset`. Returns the number
 * of bytes copied, less than `len` if the pieces end. */
size_t psc_iov_write(const psc_iov_t *iov, size_t n_iov, uint64_t offset,
                     const void *from, size_t len);
/* Fill `out` with the pieces of the range [offset, offset + *len_p). Returns
 * their number (at most `capacity`), and in *len_p the bytes that they cover.
 * For a layout both are 0. */
size_t psc_iov_slice(const psc_iov_t *iov, size_t n_iov, uint64_t offset,
                     size_t *len_p, psc_iov_t *out, size_t capacity);

/* ---- layout.c ---- */

/* Copies between the memory of a layout and contiguous memory. `offset` counts
 * bytes of the message. Both functions return the number of bytes copied, less
 * than `len` if the layout ends. */

size_t psc_layout_pack(const psc_layout_t *layout, uint64_t offset, void *to,
                       size_t len);
size_t psc_layout_unpack(const psc_layout_t *layout, uint64_t offset,
                         const void *from, size_t len);

/* Returns the layout that these pieces stand for (psc_layout_pieces), or NULL
 * if they are ordinary pieces of memory. */
static inline const psc_layout_t *psc_layout_of(const psc_iov_t *iov,
                                                size_t n_iov)
{
    return n_iov == 2 && iov[1].base == PSC_LAYOUT_MARK ? iov[0].base : NULL;
}
