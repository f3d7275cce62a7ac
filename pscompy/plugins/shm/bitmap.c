/* Creating and mapping bitmaps. */
#include "bitmap.h"

#include <sys/mman.h>

#include "pscompy/transport/kit/page.h"

psc_status_t shm_bitmap_create(int *fd_p)
{
    return shm_file_create("pscompy-bitmap", psc_page_size(), fd_p);
}

psc_status_t shm_bitmap_map(shm_bitmap_t **bitmap_p, int fd, size_t bytes)
{
    void *base;

    if (!shm_file_verify(fd, bytes))
        return PSC_ERR_PROTOCOL;
    base =
        mmap(NULL, psc_page_size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return PSC_ERR_NO_MEMORY;
    /* A forked child must not write to the peer's memory. */
    madvise(base, psc_page_size(), MADV_DONTFORK);
    *bitmap_p = base;
    return PSC_OK;
}

void shm_bitmap_unmap(shm_bitmap_t *bitmap)
{
    if (bitmap != NULL)
        munmap(bitmap, psc_page_size());
}
