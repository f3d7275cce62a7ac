/* Creating, verifying and mapping rings, and the rarely called functions of
 * producer and consumer. */
#include "ring.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pscompy/transport/kit/page.h"
#include "pscompy/transport/kit/restart.h"

#define SHM_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

bool shm_geometry_valid(const shm_geometry_t *geometry)
{
    uint64_t bytes = (uint64_t)geometry->slot_size * geometry->slots;

    return geometry->slot_size >= SHM_SLOT_MIN &&
           geometry->slot_size % SHM_LINE == 0 && geometry->slots >= 2 &&
           bytes <= SHM_RING_MAX;
}

static size_t shm_geometry_bytes(const shm_geometry_t *geometry)
{
    return psc_page_up((size_t)geometry->slot_size * geometry->slots);
}

psc_status_t shm_file_create(const char *name, size_t bytes, int *fd_p)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return PSC_ERR_NO_MEMORY;
    if (PSC_RESTART(ftruncate(fd, (off_t)bytes)) != 0 ||
        fcntl(fd, F_ADD_SEALS, SHM_SEALS) != 0) {
        close(fd);
        return PSC_ERR_NO_MEMORY;
    }
    *fd_p = fd;
    return PSC_OK;
}

bool shm_file_verify(int fd, size_t bytes)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & SHM_SEALS) == SHM_SEALS &&
           fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
           (uint64_t)status.st_size == bytes;
}

size_t shm_ring_file_size(const shm_geometry_t *geometry)
{
    return psc_page_size() + shm_geometry_bytes(geometry);
}

psc_status_t shm_ring_create(const shm_geometry_t *geometry, int *fd_p)
{
    return shm_file_create("pscompy-ring", shm_ring_file_size(geometry), fd_p);
}

size_t shm_ring_span(const shm_geometry_t *geometry)
{
    return 2 * shm_geometry_bytes(geometry);
}

void shm_ring_view(shm_ring_t *ring, const shm_geometry_t *geometry,
                   shm_control_t *control, shm_table_t *table, uint8_t *lines)
{
    *ring = (shm_ring_t){
        .control = control,
        .table = table,
        .lines = lines,
        .n_lines = (uint32_t)(shm_geometry_bytes(geometry) / SHM_LINE),
        .slot_size = geometry->slot_size,
    };
}

bool shm_ring_mirror(shm_ring_t *ring)
{
    size_t bytes = (size_t)ring->n_lines * SHM_LINE;

    /* an old length of 0 maps the pages a second time */
    ring->mirrored =
        ring->mirrored ||
        mremap(ring->lines, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               ring->lines + bytes) != MAP_FAILED;
    return ring->mirrored;
}

psc_status_t shm_ring_map_own(shm_ring_t *ring, const shm_geometry_t *geometry,
                              int fd)
{
    size_t page = psc_page_size(), span = page + shm_ring_span(geometry);
    uint8_t *base = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (base == MAP_FAILED)
        return PSC_ERR_NO_MEMORY;
    /* A forked child must neither keep the peer's memory nor write to it. */
    madvise(base, span, MADV_DONTFORK);
    shm_ring_view(ring, geometry, (shm_control_t *)(void *)base,
                  (shm_table_t *)(void *)(base + sizeof(shm_control_t)),
                  base + page);
    ring->mapped = span;
    return PSC_OK;
}

psc_status_t shm_ring_map(shm_ring_t *ring, const shm_geometry_t *geometry,
                          int fd)
{
    if (!shm_file_verify(fd, shm_ring_file_size(geometry)))
        return PSC_ERR_PROTOCOL;
    return shm_ring_map_own(ring, geometry, fd);
}

void shm_ring_unmap(shm_ring_t *ring)
{
    if (ring->mapped > 0)
        munmap(ring->control, ring->mapped);
    *ring = (shm_ring_t){0};
}

psc_status_t shm_producer_refresh(shm_producer_t *p)
{
    uint64_t consumed =
        atomic_load_explicit(&p->ring.control->consumed, memory_order_acquire);

    if (consumed - p->consumed > p->produced - p->consumed)
        return PSC_ERR_PROTOCOL;
    /* the first record that wraps around comes after lines were freed */
    if (consumed > 0 && !shm_ring_mirror(&p->ring))
        return PSC_ERR_NO_MEMORY;
    p->consumed = consumed;
    p->limit = consumed + p->ring.n_lines;
    return PSC_OK;
}

bool shm_producer_release(shm_producer_t *p)
{
    uint64_t page = psc_page_size() / SHM_LINE, n = p->ring.n_lines;
    uint64_t from = p->kept, to;

    if (shm_producer_refresh(p) != PSC_OK)
        return false; /* the next send detects and reports the peer's error */
    if (from + n < p->produced)
        from = (p->produced - n + page - 1) / page * page;
    to = (p->mark < p->consumed ? p->mark : p->consumed) / page * page;
    p->kept = from < to ? to : from;
    /* Lower `limit`, so that the next record on another page calls
     * shm_producer_refresh. */
    if (p->limit > (p->produced / page + 1) * page)
        p->limit = (p->produced / page + 1) * page;
    p->mark = p->produced;
    if (from < to)
        madvise(p->ring.lines + from % n * SHM_LINE, (to - from) * SHM_LINE,
                MADV_REMOVE);
    /* True if a later call may give pages back. It keeps the page in use and
     * the page before, which the consumer may not have freed completely. */
    return p->produced >= p->kept + 2 * page;
}

bool shm_consumer_publish(shm_consumer_t *c)
{
    shm_control_t *control = c->ring.control;

    /* Until the first call no record wraps around, because the ring holds two
     * slots. Without a mirror no further record is accepted. */
    if (!shm_ring_mirror(&c->ring))
        c->ring.slot_size = SHM_WORD_SIZE;
    c->published = c->consumed;
    atomic_store_explicit(&control->consumed, c->consumed,
                          memory_order_release);
    /* Store `consumed`, then load `starving`: before it sleeps, the producer
     * stores `starving`, then loads `consumed`. */
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&control->starving, memory_order_relaxed) &&
           atomic_exchange_explicit(&control->starving, 0,
                                    memory_order_relaxed) != 0;
}
