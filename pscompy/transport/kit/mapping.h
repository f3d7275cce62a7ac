/* Maps memory at an address that allows huge pages. */
#ifndef PSCOMPY_TRANSPORT_KIT_MAPPING_H
#define PSCOMPY_TRANSPORT_KIT_MAPPING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define PSC_HUGE_PAGE ((size_t)2 << 20)

/* Maps the whole file (MAP_SHARED), or private memory if `fd` is -1; `len` is a
 * multiple of the page size. Returns NULL and sets errno on failure. */
static inline uint8_t *psc_mapping_create(int fd, size_t len, int protection)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    size_t room = len + PSC_HUGE_PAGE, before;
    uint8_t *at = mmap(NULL, room, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t *base;

    if (at == MAP_FAILED)
        return NULL;
    before = -(uintptr_t)at & (PSC_HUGE_PAGE - 1);
    base = at + before;
    if (before > 0)
        munmap(at, before);
    munmap(base + len, room - before - len);
    if (mmap(base, len, protection, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(base, len);
        return NULL;
    }
    /* Not in private memory, where even a short block would take a huge page;
     * psc_segment_warm makes huge pages of long blocks. */
    if (fd >= 0)
        madvise(base, len & ~(PSC_HUGE_PAGE - 1), MADV_HUGEPAGE);
    return base;
}

#endif
