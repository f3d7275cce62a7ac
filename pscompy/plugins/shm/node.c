/* The node file, which the ranks of a job on one node share (inbox.h).
 *
 *   head             proves that a rank of the job made the file
 *   4,096 inboxes    one for each rank, SHM_INBOX_SPAN bytes apart
 *   pairs (a, b)     the rings between the ranks a < b, ordered by b, then by a
 *
 * The file has room for all pairs of 4,096 ranks, but only pages that are used
 * take memory. A rank maps a block of pairs when it first uses one of them:
 * block k has the pairs in which b has k + 1 binary digits. So a small job
 * takes little address space, although the number of ranks is not known
 * beforehand. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inbox.h"
#include "pscompy/transport/kit/page.h"
#include "pscompy/transport/kit/restart.h"

#define SHM_HEAD_MAGIC 0x32646f6eu /* "nod2" */
/* Bytes of the head, and of each inbox: 4 KiB hold the head and 3 inboxes. */
#define SHM_INBOX_SPAN 1024u

/* The beginning of the file. */
typedef struct shm_head {
    uint32_t magic;
    shm_geometry_t geometry; /* size of each ring in the file */
    uint32_t reserved;
    /* hash of the fields above, keyed with the job's key */
    uint8_t proof[PSC_SIPHASH_SIZE];
} shm_head_t;

_Static_assert(sizeof(shm_head_t) <= SHM_INBOX_SPAN, "inbox 0 is behind it");
_Static_assert(sizeof(shm_inbox_t) <= SHM_INBOX_SPAN, "inboxes do not overlap");
_Static_assert(2 * sizeof(shm_control_t) <= 4096, "one page for a pair");

/* ---- where things stand ---- */

/* Returns the bytes of a pair of rings: one page with the control words of
 * both, one page per ring for the receives that its producer advertises, and
 * the lines. */
static size_t shm_pair_span(const shm_iface_t *iface)
{
    return 3 * psc_page_size() + 2 * shm_ring_span(&iface->geometry);
}

/* Returns the offset of the pair (0, high) in the node file. */
static size_t shm_pairs_at(const shm_iface_t *iface, size_t high)
{
    return psc_page_up((1 + SHM_INBOX_RANKS) * SHM_INBOX_SPAN) +
           high * (high - 1) / 2 * shm_pair_span(iface);
}

static size_t shm_node_size(const shm_iface_t *iface)
{
    return shm_pairs_at(iface, SHM_INBOX_RANKS);
}

/* Returns the offset of a block of pairs in the node file. */
static size_t shm_block_at(const shm_iface_t *iface, unsigned block)
{
    return shm_pairs_at(iface, (size_t)1 << block);
}

static size_t shm_block_size(const shm_iface_t *iface, unsigned block)
{
    return shm_block_at(iface, block + 1) - shm_block_at(iface, block);
}

/* ---- mapping ---- */

/* Returns NULL if no address space is left. */
static uint8_t *shm_node_map(const shm_iface_t *iface, size_t at, size_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                      iface->node_fd, (off_t)at);

    if (base == MAP_FAILED)
        return NULL;
    /* A forked child must neither keep the memory nor write to it, and a dump
     * of the process needs no pages of unused rings. */
    madvise(base, bytes, MADV_DONTFORK);
    madvise(base, bytes, MADV_DONTDUMP);
    return base;
}

shm_inbox_t *shm_node_inbox(const shm_iface_t *iface, int rank)
{
    return (shm_inbox_t *)(void *)(iface->node +
                                   (1 + (size_t)rank) * SHM_INBOX_SPAN);
}

/* Returns NULL if no address space is left. */
static uint8_t *shm_node_pair(shm_iface_t *iface, size_t low, size_t high)
{
    unsigned block = 31u - (unsigned)__builtin_clz((unsigned)high);
    size_t at = shm_block_at(iface, block);

    if (iface->blocks[block] == NULL)
        iface->blocks[block] =
            shm_node_map(iface, at, shm_block_size(iface, block));
    if (iface->blocks[block] == NULL)
        return NULL;
    return iface->blocks[block] + (shm_pairs_at(iface, high) - at) +
           low * shm_pair_span(iface);
}

/* Fills in `ring` for a ring of the pair that is mapped at `base`: for the one
 * that the lower rank writes if `upward`, else for the other. */
static void shm_pair_ring(const shm_iface_t *iface, uint8_t *base, bool upward,
                          shm_ring_t *ring)
{
    size_t number = upward ? 0 : 1, page = psc_page_size();

    shm_ring_view(ring, &iface->geometry,
                  (shm_control_t *)(void *)base + number,
                  (shm_table_t *)(void *)(base + (1 + number) * page),
                  base + 3 * page + number * shm_ring_span(&iface->geometry));
}

bool shm_node_rings(shm_iface_t *iface, int rank, shm_ring_t *tx,
                    shm_ring_t *rx)
{
    bool upward = iface->rank < rank;
    uint8_t *base = shm_node_pair(iface, (size_t)(upward ? iface->rank : rank),
                                  (size_t)(upward ? rank : iface->rank));

    if (base == NULL)
        return false;
    shm_pair_ring(iface, base, upward, tx);
    shm_pair_ring(iface, base, !upward, rx);
    return true;
}

/* ---- finding and making the file ---- */

static void shm_head_prove(const shm_head_t *head, const uint8_t *key,
                           uint8_t *proof)
{
    psc_siphash(key, head, offsetof(shm_head_t, proof), proof);
}

/* Writes the node file's name, the path of a symbolic link. The name contains
 * the number of our name space of process ids, because the socket leads into
 * /proc and is of no use in other name spaces. */
static bool shm_node_name(const shm_iface_t *iface, char *name)
{
    struct stat space = {0};

    stat("/proc/self/ns/pid", &space);
    return (size_t)snprintf(name, SHM_PATH_MAX, "%s/" SHM_NODE "%llu",
                            iface->listener.job,
                            (unsigned long long)space.st_ino) < SHM_PATH_MAX;
}

/* Returns a descriptor of the file, or -1 if no rank of the job that still runs
 * has made one. */
static int shm_node_find(const shm_iface_t *iface, const char *name)
{
    uint8_t proof[PSC_SIPHASH_SIZE];
    shm_head_t head;
    int fd =
        PSC_RESTART(open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));

    if (fd < 0)
        return -1;
    if (PSC_RESTART(pread(fd, &head, sizeof head, 0)) == (ssize_t)sizeof head &&
        head.magic == SHM_HEAD_MAGIC) {
        shm_head_prove(&head, iface->key, proof);
        if (psc_siphash_equal(proof, head.proof))
            return fd;
    }
    close(fd);
    return -1;
}

/* Makes the file and gives it its name, in place of one that a killed process
 * has left. Returns a descriptor, or -1 with errno. */
static int shm_node_make(shm_iface_t *iface, const char *name)
{
    shm_head_t head = {.magic = SHM_HEAD_MAGIC, .geometry = iface->geometry};
    char file[SHM_FD_PATH_SIZE];
    int fd;

    shm_head_prove(&head, iface->key, head.proof);
    if (shm_file_create("pscompy-node", shm_node_size(iface), &fd) != PSC_OK)
        return -1;
    snprintf(file, sizeof file, SHM_FD_PATH, (int)getpid(), fd);
    unlink(name);
    if (PSC_RESTART(pwrite(fd, &head, sizeof head, 0)) ==
            (ssize_t)sizeof head &&
        symlink(file, name) == 0) {
        iface->node_made = true;
        return fd;
    }
    close(fd);
    return -1;
}

bool shm_node_open(shm_iface_t *iface)
{
    char name[SHM_PATH_MAX];
    shm_head_t *head;

    if (iface->rank >= (int)SHM_INBOX_RANKS || !shm_node_name(iface, name))
        return false;
    iface->node_fd = shm_node_find(iface, name);
    if (iface->node_fd < 0)
        iface->node_fd = shm_node_make(iface, name);
    if (iface->node_fd < 0 ||
        !shm_file_verify(iface->node_fd, shm_node_size(iface)))
        return false;
    iface->node = shm_node_map(iface, 0, shm_pairs_at(iface, 1));
    head = (shm_head_t *)(void *)iface->node;
    return head != NULL && memcmp(&head->geometry, &iface->geometry,
                                  sizeof head->geometry) == 0;
}

void shm_node_part(shm_iface_t *iface)
{
    char name[SHM_PATH_MAX];

    if (iface->inbox != NULL)
        atomic_store(&iface->inbox->owned, SHM_OWNED);
    if (iface->node_made && shm_node_name(iface, name))
        unlink(name);
    iface->node_made = false;
}

void shm_node_close(shm_iface_t *iface)
{
    for (unsigned i = 0; i < SHM_NODE_BLOCKS; i++) {
        if (iface->blocks[i] != NULL)
            munmap(iface->blocks[i], shm_block_size(iface, i));
        iface->blocks[i] = NULL;
    }
    if (iface->node != NULL)
        munmap(iface->node, shm_pairs_at(iface, 1));
    if (iface->node_fd >= 0)
        close(iface->node_fd);
    iface->node = NULL;
    iface->node_fd = -1;
}
