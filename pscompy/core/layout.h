/* Copies between the memory of a layout and contiguous memory. `offset` counts
 * bytes of the message. Both functions return the number of bytes copied, less
 * than `len` if the layout ends. */
#pragma once

#include "api.h"

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
