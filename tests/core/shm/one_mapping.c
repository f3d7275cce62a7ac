/* Lets ThreadSanitizer see what orders the accesses of two ends of shm in one
 * process: both ends of a connection get the same mapping of a ring, and
 * cross-memory attach is a memcpy. Linked with --wrap for these functions. */
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "pscompy/plugins/shm/ring.h"

#define WRAPPED(name) __wrap_##name
#define REAL(name) __real_##name
#define MAPPINGS 64

psc_status_t REAL(shm_ring_map)(shm_ring_t *ring,
                                const shm_geometry_t *geometry, int fd);
psc_status_t WRAPPED(shm_ring_map)(shm_ring_t *ring,
                                   const shm_geometry_t *geometry, int fd);
psc_status_t WRAPPED(shm_ring_map_own)(shm_ring_t *ring,
                                       const shm_geometry_t *geometry, int fd);
void REAL(shm_ring_unmap)(shm_ring_t *ring);
void WRAPPED(shm_ring_unmap)(shm_ring_t *ring);
ssize_t WRAPPED(process_vm_readv)(pid_t pid, const struct iovec *local,
                                  unsigned long n_local,
                                  const struct iovec *remote,
                                  unsigned long n_remote, unsigned long flags);
ssize_t WRAPPED(process_vm_writev)(pid_t pid, const struct iovec *local,
                                   unsigned long n_local,
                                   const struct iovec *remote,
                                   unsigned long n_remote, unsigned long flags);

/* ---- rings ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    ino_t file;
    shm_ring_t ring;
    unsigned users;
} mappings[MAPPINGS];

/* Returns the place of the file, or a free one. */
static int find(ino_t file)
{
    int at = -1;

    for (int i = 0; i < MAPPINGS; i++) {
        if (mappings[i].users > 0 && mappings[i].file == file)
            return i;
        if (mappings[i].users == 0)
            at = i;
    }
    return at;
}

psc_status_t WRAPPED(shm_ring_map)(shm_ring_t *ring,
                                   const shm_geometry_t *geometry, int fd)
{
    psc_status_t status = PSC_OK;
    struct stat file;
    int at;

    if (fstat(fd, &file) != 0)
        return PSC_ERR_TRANSPORT;
    pthread_mutex_lock(&lock);
    at = find(file.st_ino);
    if (at < 0)
        status = PSC_ERR_NO_MEMORY;
    else if (mappings[at].users == 0)
        status = REAL(shm_ring_map)(&mappings[at].ring, geometry, fd);
    if (status == PSC_OK) {
        mappings[at].file = file.st_ino;
        mappings[at].users++;
        *ring = mappings[at].ring;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

psc_status_t WRAPPED(shm_ring_map_own)(shm_ring_t *ring,
                                       const shm_geometry_t *geometry, int fd)
{
    return WRAPPED(shm_ring_map)(ring, geometry, fd);
}

void WRAPPED(shm_ring_unmap)(shm_ring_t *ring)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; ring->control != NULL && i < MAPPINGS; i++)
        if (mappings[i].users > 0 &&
            mappings[i].ring.control == ring->control &&
            --mappings[i].users == 0)
            REAL(shm_ring_unmap)(&mappings[i].ring);
    *ring = (shm_ring_t){0};
    pthread_mutex_unlock(&lock);
}

/* ---- cross-memory attach ---- */

/* A word may be a seal, which its owner changes at any time. */
static void copy(void *to, const void *from, size_t len)
{
    uint64_t word;

    if (len == sizeof word && (uintptr_t)from % sizeof word == 0) {
        word = __atomic_load_n((const uint64_t *)from, __ATOMIC_RELAXED);
        memcpy(to, &word, len);
    } else {
        memcpy(to, from, len);
    }
}

/* Piece i of one list is as long as piece i of the other. */
static ssize_t move(const struct iovec *to, const struct iovec *from,
                    unsigned long n)
{
    ssize_t done = 0;

    for (unsigned long i = 0; i < n; i++) {
        if (to[i].iov_len != from[i].iov_len)
            __builtin_trap();
        copy(to[i].iov_base, from[i].iov_base, to[i].iov_len);
        done += (ssize_t)to[i].iov_len;
    }
    return done;
}

ssize_t WRAPPED(process_vm_readv)(pid_t pid, const struct iovec *local,
                                  unsigned long n_local,
                                  const struct iovec *remote,
                                  unsigned long n_remote, unsigned long flags)
{
    (void)pid;
    (void)n_remote;
    (void)flags;
    return move(local, remote, n_local);
}

ssize_t WRAPPED(process_vm_writev)(pid_t pid, const struct iovec *local,
                                   unsigned long n_local,
                                   const struct iovec *remote,
                                   unsigned long n_remote, unsigned long flags)
{
    (void)pid;
    (void)n_remote;
    (void)flags;
    return move(remote, local, n_local);
}
