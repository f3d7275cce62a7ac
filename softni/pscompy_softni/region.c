/* psni_region_t: memory of a memory descriptor or a list entry, in one piece or
 * in several. */
#include <string.h>

#include "nic.h"

bool psni_region_init(psni_region_t *region, void *start, uint64_t length,
                      bool scattered, int max_pieces)
{
    *region = (psni_region_t){.start = start, .length = length};
    if (!scattered)
        return true;
    if (length > (uint64_t)max_pieces || (start == NULL && length > 0))
        return false;
    region->pieces = start;
    region->n_pieces = (uint32_t)length;
    region->length = 0;
    for (uint32_t i = 0; i < region->n_pieces; i++)
        if (__builtin_add_overflow(region->length, region->pieces[i].iov_len,
                                   &region->length))
            return false;
    return true;
}

/* Returns the address at an offset of the region. If the region starts at NULL
 * and spans all memory, offsets are addresses. */
static uint8_t *psni_region_address(const psni_region_t *region,
                                    uint64_t offset)
{
    return (uint8_t *)((uintptr_t)region->start + (uintptr_t)offset);
}

/* Returns the address at `offset`, and stores the number of contiguous bytes
 * there, at most `length`. */
static uint8_t *psni_region_piece(const psni_region_t *region, uint64_t offset,
                                  uint64_t *length)
{
    if (region->pieces == NULL)
        return psni_region_address(region, offset);
    for (uint32_t i = 0; i < region->n_pieces; i++) {
        const ptl_iovec_t *piece = &region->pieces[i];

        if (offset < piece->iov_len) {
            if (*length > piece->iov_len - offset)
                *length = piece->iov_len - offset;
            return (uint8_t *)piece->iov_base + offset;
        }
        offset -= piece->iov_len;
    }
    return NULL; /* not reached: callers stay within the region */
}

int psni_region_gather(const psni_region_t *region, uint64_t offset,
                       uint64_t length, struct iovec *out, int max)
{
    int n = 0;

    while (length > 0) {
        uint64_t part = length;
        uint8_t *bytes = psni_region_piece(region, offset, &part);

        if (n == max)
            return -1;
        out[n++] = (struct iovec){.iov_base = bytes, .iov_len = part};
        offset += part;
        length -= part;
    }
    return n;
}

/* Copies bytes into the region if `in` is set, else out of it. */
static void psni_region_copy(const psni_region_t *region, uint64_t offset,
                             uint8_t *bytes, uint64_t length, bool in)
{
    while (length > 0) {
        uint64_t part = length;
        uint8_t *at = psni_region_piece(region, offset, &part);

        memcpy(in ? at : bytes, in ? bytes : at, part);
        bytes += part;
        offset += part;
        length -= part;
    }
}

void psni_region_write(const psni_region_t *region, uint64_t offset,
                       const void *bytes, uint64_t length)
{
    psni_region_copy(region, offset, (void *)(uintptr_t)bytes, length, true);
}

void psni_region_read(const psni_region_t *region, uint64_t offset, void *bytes,
                      uint64_t length)
{
    psni_region_copy(region, offset, bytes, length, false);
}

void *psni_region_at(const psni_region_t *region, uint64_t offset)
{
    uint64_t one = 1;

    if (region->pieces == NULL)
        return psni_region_address(region, offset);
    return offset < region->length ? psni_region_piece(region, offset, &one)
                                   : NULL;
}
