/* Memory segments of a peer's buffer pool, mapped for reading.
 *
 * The segment's descriptor is opened through /proc/<pid>/fd of the peer. This
 * needs no message of its own, and fewer rights than cross-memory attach: only
 * the right to read another process of the same user, which
 * kernel.yama.ptrace_scope=1 does not forbid. The guard (shm_cma_guarded) shows
 * that the process is still the peer. The file itself shows that the descriptor
 * number is the one that the key means: it must be a sealed memory file of this
 * length with this id. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pscompy/transport/kit/mapping.h"
#include "pscompy/transport/kit/page.h"
#include "pscompy/transport/kit/restart.h"
#include "memory.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SHM_MAP_SEALS                                                          \
    (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE)

typedef struct shm_map {
    psc_map_t super;
    /* pidfd of the segment's owner; -1 if this process owns the segment, or if
     * no pidfd is available */
    int process;
} shm_map_t;

/* ---- sharing a segment ---- */

static const psc_segment_identity_t *shm_map_identity(const void *base,
                                                      size_t len)
{
    return (const void *)((const uint8_t *)base + len - psc_page_size());
}

psc_status_t shm_mem_share(psc_iface_t *iface, void *base, size_t len, int fd,
                           psc_mem_t **mem_p)
{
    psc_status_t status = shm_mem_register(iface, NULL, base, len, mem_p);

    if (status != PSC_OK)
        return status;
    (*mem_p)->fd = fd;
    memcpy((*mem_p)->id, shm_map_identity(base, len)->id, SHM_ID_SIZE);
    return PSC_OK;
}

/* ---- the file ---- */

/* Checks kind and length of the file before it is opened for reading, because
 * opening some kinds of files has side effects. */
static bool shm_map_verify(int fd, uint64_t len)
{
    struct stat status;

    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
           (uint64_t)status.st_size == len;
}

static bool shm_map_sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & SHM_MAP_SEALS) == SHM_MAP_SEALS;
}

static int shm_map_reopen(int path_fd)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/self/fd/%d", path_fd);
    return PSC_RESTART(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

/* Opens the peer's segment for reading. Returns -1 if the file does not match
 * the key or cannot be opened. */
static int shm_map_open(const shm_ep_t *ep, const shm_packed_rkey_t *key)
{
    pid_t pid = ep->self ? getpid() : ep->pid;
    char path[48];
    int there, fd = -1;

    if (pid <= 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)pid, (int)key->fd);
    there = PSC_RESTART(open(path, O_PATH | O_CLOEXEC));
    if (there < 0)
        return -1;
    if ((ep->self || shm_cma_guarded(ep)) && shm_map_verify(there, key->len))
        fd = shm_map_reopen(there);
    close(there);
    if (fd >= 0 && !shm_map_sealed(fd)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* ---- the mapping ---- */

static void shm_map_destroy(psc_map_t *super)
{
    shm_map_t *map = psc_container_of(super, shm_map_t, super);

    munmap((void *)(uintptr_t)super->base, super->len);
    if (map->process >= 0)
        close(map->process);
    free(map);
}

/* Returns true if the process that owns the segment has ended, so that nobody
 * writes the segment any more. */
static bool shm_map_orphaned(const shm_map_t *map)
{
    struct pollfd process = {.fd = map->process, .events = POLLIN};

    return map->process >= 0 && PSC_RESTART(poll(&process, 1, 0)) > 0;
}

/* Replaces the pages that hold the `len` bytes at `offset` by a private copy in
 * one step, so that a concurrent reader sees either the old pages or the
 * copy. */
static psc_status_t shm_map_keep(psc_map_t *super, uint64_t offset, size_t len)
{
    shm_map_t *map = psc_container_of(super, shm_map_t, super);
    size_t from = (size_t)offset / psc_page_size() * psc_page_size();
    size_t to = psc_page_up((size_t)offset + len);
    uint8_t *there = (uint8_t *)(uintptr_t)super->base + from, *copy;

    if (to == from || shm_map_orphaned(map))
        return PSC_OK;
    copy = mmap(NULL, to - from, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return PSC_ERR_NO_MEMORY;
    memcpy(copy, there, to - from);
    if (mprotect(copy, to - from, PROT_READ) != 0 ||
        mremap(copy, to - from, to - from, MREMAP_MAYMOVE | MREMAP_FIXED,
               there) == MAP_FAILED) {
        munmap(copy, to - from);
        return PSC_ERR_NO_MEMORY;
    }
    return PSC_OK;
}

static psc_status_t shm_map_create(const shm_ep_t *ep, void *base, size_t len,
                                   psc_map_t **map_p)
{
    shm_map_t *map = malloc(sizeof *map);

    if (map == NULL)
        return PSC_ERR_NO_MEMORY;
    map->super = (psc_map_t){.base = base,
                             .len = len,
                             .refs = 1,
                             .destroy = shm_map_destroy,
                             .keep = shm_map_keep};
    map->process = -1;
    if (ep->sock != NULL && ep->sock->process.fd >= 0)
        map->process = fcntl(ep->sock->process.fd, F_DUPFD_CLOEXEC, 0);
    *map_p = &map->super;
    return PSC_OK;
}

/* Maps the peer's segment `fd`, and checks its id. Takes ownership of `fd`. */
static psc_status_t shm_map_finish(const shm_ep_t *ep, int fd,
                                   const shm_packed_rkey_t *key,
                                   psc_map_t **map_p)
{
    void *base = psc_mapping_create(fd, key->len, PROT_READ);
    psc_status_t status = PSC_ERR_UNSUPPORTED;

    close(fd);
    if (base == NULL)
        return PSC_ERR_NO_MEMORY;
    if (memcmp(shm_map_identity(base, key->len)->id, key->id, SHM_ID_SIZE) == 0)
        status = shm_map_create(ep, base, key->len, map_p);
    if (status != PSC_OK)
        munmap(base, key->len);
    return status;
}

psc_status_t shm_rkey_map(psc_ep_t *super, const uint8_t *packed, size_t len,
                          psc_map_t **map_p)
{
    shm_ep_t *ep = shm_ep(super);
    shm_packed_rkey_t key;
    int fd;

    if (ep->state != SHM_EP_UP)
        return ep->status < 0 ? ep->status : PSC_ERR_INVALID;
    if (len != sizeof key)
        return PSC_ERR_PROTOCOL;
    memcpy(&key, packed, sizeof key);
    if (memcmp(key.process, ep->peer.process, SHM_ID_SIZE) != 0 || key.fd < 0 ||
        key.len <= psc_page_size() || key.len > INT64_MAX / 2 ||
        key.len % psc_page_size() != 0)
        return PSC_ERR_PROTOCOL;
    fd = shm_map_open(ep, &key);
    if (fd < 0)
        return PSC_ERR_UNSUPPORTED;
    return shm_map_finish(ep, fd, &key, map_p);
}
