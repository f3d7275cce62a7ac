#include "pieces.h"

#include <string.h>

size_t psc_iov_slice(const psc_iov_t *iov, size_t n_iov, uint64_t offset,
                     size_t *len_p, psc_iov_t *out, size_t capacity)
{
    size_t n = 0, left = *len_p, covered = 0;

    if (psc_layout_of(iov, n_iov))
        return *len_p = 0;
    for (size_t i = 0; i < n_iov && n < capacity && left > 0; i++) {
        size_t take;

        if (offset >= iov[i].len) {
            offset -= iov[i].len;
            continue;
        }
        take = iov[i].len - offset < left ? iov[i].len - offset : left;
        out[n].base = (char *)iov[i].base + offset;
        out[n++].len = take;
        covered += take;
        left -= take;
        offset = 0;
    }
    *len_p = covered;
    return n;
}

size_t psc_iov_write(const psc_iov_t *iov, size_t n_iov, uint64_t offset,
                     const void *from, size_t len)
{
    const psc_layout_t *layout = psc_layout_of(iov, n_iov);
    size_t done = 0;

    if (layout)
        return psc_layout_unpack(layout, offset, from, len);
    while (done < len) {
        psc_iov_t piece;
        size_t take = len - done;

        if (psc_iov_slice(iov, n_iov, offset + done, &take, &piece, 1) == 0)
            break;
        memcpy(piece.base, (const char *)from + done, take);
        done += take;
    }
    return done;
}
