/* How the ranks of a job on one node connect without a socket.
 *
 * They share one memory file, the node file (node.c), which each of them maps
 * when it joins the job. It has an inbox for each rank: a bitmap (bits by which
 * other ranks ask for attention) and a segment address (data by which others
 * reach the rank). Behind the inboxes stands a place for the two rings of each
 * pair of ranks. So a connection needs no file of its own, and no mapping. The
 * ranks find the file by a name in a folder that follows from the job's key
 * (listen.c): a symbolic link to a descriptor in /proc, so that nothing is left
 * when the process that made the file is killed.
 *
 * A rank asks another one for a connection by a call, a word in the ring that
 * it writes (call.h). All ranks of the job map the file, so one of them can
 * read and forge the messages of others. They have proved the same key;
 * docs/security.md has the threat. Other processes cannot open the file, except
 * those of the same user that may open the descriptors of the process that made
 * it, as with any ring. */
#pragma once

#include "call.h"

#define SHM_INBOX_RANKS SHM_BITMAP_BITS
/* Path of another process's descriptor, by the process's id and the number of
 * the descriptor. The node file's name is a symbolic link to such a path. */
#define SHM_FD_PATH "/proc/%d/fd/%d"
#define SHM_FD_PATH_SIZE 40u
#define SHM_SEGMENT_ADDRESS_MAGIC 0x35786f62u /* "box5" */

/* The data by which other ranks reach the rank that owns the inbox. It is
 * written once, by the owner. */
typedef struct shm_segment_address {
    uint32_t magic;
    int32_t rank;
    int32_t pid;
    /* Numbers of descriptors in the process `pid`. doorbell: the pipe that
     * wakes the process. connect_doorbell: the pipe to which a rank writes when
     * it asks for a connection. */
    int32_t doorbell, connect_doorbell;
    /* inode numbers of the pipes `doorbell` and `connect_doorbell`, by which
     * other ranks recognize the pipes */
    uint64_t doorbell_inode, connect_doorbell_inode;
    uint8_t cma; /* shm_cma_mode_t of the rank */
    uint8_t expedited; /* the process is registered for membarrier */
    uint8_t process[SHM_ID_SIZE];
    uint64_t probe; /* address of the field `process` in the rank's process */
    /* hash of the fields above, keyed with the job's key */
    uint8_t proof[PSC_SIPHASH_SIZE];
} shm_segment_address_t;

/* The states of an inbox. */
typedef enum shm_owned {
    SHM_OWNED_BY_NOBODY,
    /* the inbox's process has not written its segment address yet, or has left
       the job */
    SHM_OWNED,
    SHM_OWNED_WITH_ADDRESS
} shm_owned_t;

struct shm_inbox {
    /* Bit r: rank r asks for a connection, has answered such a request, or has
     * written a record into its ring. */
    shm_bitmap_t bitmap;
    /* 1 while the owner has been woken, and has not looked at the bitmap yet */
    _Alignas(128) _Atomic uint32_t rung;
    _Atomic uint32_t owned; /* shm_owned_t */
    _Alignas(128) shm_segment_address_t address;
};

/* Functions of node.c. */
/* Opens the job's node file, or makes it if this rank is the first, and maps
 * the inboxes. Called while the job's folder is locked. Returns false if the
 * file cannot be used. */
bool shm_node_open(shm_iface_t *iface);
void shm_node_close(shm_iface_t *iface);
/* Called when this rank leaves the job, so that no other rank asks it for a
 * connection. Removes the name of the node file if this process made the
 * file. */
void shm_node_part(shm_iface_t *iface);
shm_inbox_t *shm_node_inbox(const shm_iface_t *iface, int rank);
/* Finds the two rings between this rank and another one: `tx`, which this one
 * writes, and `rx`. Returns false if they cannot be mapped. */
bool shm_node_rings(shm_iface_t *iface, int rank, shm_ring_t *tx,
                    shm_ring_t *rx);

/* Clears `rung`, so that a rank that sets a bit on the bitmap of our inbox
 * wakes us. Bits that were set before wake nobody; the caller reads them. */
static inline void shm_inbox_listen(shm_iface_t *iface)
{
    if (iface->inbox != NULL &&
        atomic_load_explicit(&iface->inbox->rung, memory_order_relaxed))
        atomic_exchange(&iface->inbox->rung, 0);
}

/* Returns true if a rank has set a bit on the bitmap of our inbox. */
static inline bool shm_inbox_pending(const shm_iface_t *iface)
{
    return iface->inbox != NULL &&
           atomic_load_explicit(&iface->inbox->bitmap.groups,
                                memory_order_relaxed) != 0;
}
