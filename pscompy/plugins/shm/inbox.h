/* Inboxes, by which the ranks of a job on one node connect without a socket.
 *
 * An inbox is a memory file of one rank. Its first page has a board (bits by
 * which other ranks ask for attention) and a card (data by which others reach
 * the rank). Behind this page stands a ring for each other rank, which that
 * rank alone writes. The ranks find an inbox by a name that follows from the
 * job's key and the rank (listen.c): a symbolic link to the descriptor in
 * /proc, so that nothing is left when the process is killed.
 *
 * A rank asks another one for a connection by an offer, a word in its ring in
 * the other's inbox (call.h). All ranks of the job may map all of an inbox, so
 * one of them can read and forge the messages of others. They have proved the
 * same key; docs/security.md has the threat. Other processes cannot open the
 * file, except those of the same user that may open the descriptors of this
 * one, as with any ring. */
#pragma once

#include "call.h"

#define SHM_INBOX_RANKS SHM_BOARD_BITS
/* Path of another process's descriptor, by the process's id and the number of
 * the descriptor. An inbox's name is a symbolic link to such a path. */
#define SHM_PLACE "/proc/%d/fd/%d"
#define SHM_PLACE_SIZE 40u
#define SHM_CARD_MAGIC 0x34786f62u /* "box4" */

/* The data by which other ranks reach the rank that owns the inbox. It is
 * written once, by the owner. */
typedef struct shm_card {
    uint32_t magic;
    int32_t rank;
    int32_t pid;
    /* numbers of descriptors in that process: of the pipe that wakes its
     * progress, and of the pipe to which a rank writes when it asks for a
     * connection */
    int32_t bell, knock;
    /* inode numbers of these pipes, by which others recognize them */
    uint64_t bell_inode, knock_inode;
    shm_geometry_t geometry; /* size of each ring in the inbox */
    uint8_t cma; /* shm_cma_mode_t of the rank */
    uint8_t expedited; /* the process is registered for membarrier */
    uint8_t process[SHM_ID_SIZE];
    uint64_t probe; /* address of the field `process` in the rank's process */
    /* hash of the fields above, keyed with the job's key */
    uint8_t proof[PSC_SIPHASH_SIZE];
} shm_card_t;

struct shm_inbox {
    /* Bit r: rank r asks for a connection, has answered such a request, or has
     * written a record into its ring. */
    shm_board_t board;
    /* 1 while the owner has been woken, and has not looked at the board yet */
    _Alignas(128) _Atomic uint32_t knocked;
    _Alignas(128) shm_card_t card;
};

_Static_assert(sizeof(struct shm_inbox) <= 4096, "one page");

/* True if a rank has set a bit on the board of our inbox. */
/* From now on a rank that sets its bit knocks again. Look at the board
 * afterwards. */
static inline void shm_inbox_listen(shm_iface_t *iface)
{
    if (iface->inbox != NULL &&
        atomic_load_explicit(&iface->inbox->knocked, memory_order_relaxed))
        atomic_exchange(&iface->inbox->knocked, 0);
}

static inline bool shm_inbox_pending(const shm_iface_t *iface)
{
    return iface->inbox != NULL &&
           atomic_load_explicit(&iface->inbox->board.groups,
                                memory_order_relaxed) != 0;
}
