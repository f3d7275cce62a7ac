/* The pieces of a request's memory. */
#pragma once

#include "pscompy/transport/kit/iov.h"

/* Copy a flat buffer into the pieces, beginning at `offset`. Returns the number
 * of bytes copied, less than `len` if the pieces end. */
size_t psc_iov_write(const psc_iov_t *iov, size_t n_iov, uint64_t offset,
                     const void *from, size_t len);
/* Fill `out` with the pieces of the range [offset, offset + *len_p). Returns
 * their number (at most `capacity`), and in *len_p the bytes that they cover.
 * For a layout both are 0. */
size_t psc_iov_slice(const psc_iov_t *iov, size_t n_iov, uint64_t offset,
                     size_t *len_p, psc_iov_t *out, size_t capacity);
