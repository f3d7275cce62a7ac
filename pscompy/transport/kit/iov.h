/* The pieces of a message: their total length, and their copy in one buffer.
 * Header only. */
#ifndef PSCOMPY_TRANSPORT_KIT_IOV_H
#define PSCOMPY_TRANSPORT_KIT_IOV_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "pscompy/transport/transport.h"

static inline uint64_t psc_iov_total(const psc_iov_t *iov, size_t n_iov)
{
    uint64_t total = 0;

    for (size_t i = 0; i < n_iov; i++)
        total += iov[i].len;
    return total;
}

/* Copies the pieces one behind the other. Returns the end of the copy. */
static inline uint8_t *psc_iov_gather(uint8_t *to, const psc_iov_t *iov,
                                      size_t n_iov)
{
    for (size_t i = 0; i < n_iov; i++) {
        if (iov[i].len > 0)
            memcpy(to, iov[i].base, iov[i].len);
        to += iov[i].len;
    }
    return to;
}

#endif
