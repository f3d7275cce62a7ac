#include "pieces.h"

#include <string.h>

/* Copy `n` runs of `run` bytes whose addresses are `stride` apart. Inlined for
 * each short run length, so that the copy of a run is one move instruction. */
static inline __attribute__((always_inline)) void
layout_copy_runs(char *at, int64_t stride, char *flat, size_t run, uint64_t n,
                 bool pack)
{
    for (; n > 0; n--, at += stride, flat += run)
        memcpy(pack ? flat : at, pack ? at : flat, run);
}

/* Copy `n` runs whose addresses are `stride` apart, by code that the compiler
 * has specialized for this run length. */
static inline __attribute__((always_inline)) void
layout_copy_row(char *at, int64_t stride, char *flat, size_t run, uint64_t n,
                bool pack)
{
    switch (run) {
    case 1:
        layout_copy_runs(at, stride, flat, 1, n, pack);
        break;
    case 2:
        layout_copy_runs(at, stride, flat, 2, n, pack);
        break;
    case 4:
        layout_copy_runs(at, stride, flat, 4, n, pack);
        break;
    case 8:
        layout_copy_runs(at, stride, flat, 8, n, pack);
        break;
    case 16:
        layout_copy_runs(at, stride, flat, 16, n, pack);
        break;
    default:
        layout_copy_runs(at, stride, flat, run, n, pack);
    }
}

/* Returns the address of the run with this index. */
static char *layout_at(const psc_layout_t *layout, uint64_t index)
{
    char *at = layout->base;

    for (size_t i = layout->n_dims; i-- > 0; index /= layout->dims[i].n)
        at += (int64_t)(index % layout->dims[i].n) * layout->dims[i].stride;
    return at;
}

static uint64_t layout_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Copy row by row of the innermost dimension; the first and the last run may be
 * copied in part. */
static inline __attribute__((always_inline)) size_t
layout_copy(const psc_layout_t *layout, uint64_t offset, char *flat, size_t len,
            bool pack)
{
    const psc_dim_t *inner = &layout->dims[layout->n_dims - 1];
    uint64_t total = psc_layout_nbytes(layout);
    uint64_t end = offset + layout_min(len, total - layout_min(offset, total));
    uint64_t next = offset;

    while (next < end) {
        uint64_t index = next / layout->run, within = next % layout->run;
        char *at = layout_at(layout, index) + within;
        uint64_t n =
            layout_min(inner->n - index % inner->n, (end - next) / layout->run);
        size_t part = layout_min(layout->run - within, end - next);

        if (within == 0 && n > 0)
            layout_copy_row(at, inner->stride, flat, part = layout->run, n,
                            pack);
        else
            layout_copy_runs(at, 0, flat, part, n = 1, pack);
        flat += n * part;
        next += n * part;
    }
    return end - offset;
}

size_t psc_layout_pack(const psc_layout_t *layout, uint64_t offset, void *to,
                       size_t len)
{
    return layout_copy(layout, offset, to, len, true);
}

size_t psc_layout_unpack(const psc_layout_t *layout, uint64_t offset,
                         const void *from, size_t len)
{
    return layout_copy(layout, offset, (char *)from, len, false);
}
