/* Inboxes, by which the ranks of a job on one node connect without a socket.
 *
 * An inbox is a memory file of one rank. Its first page has a board, a card
 * that says how to reach the rank, and behind it stands a ring for each other
 * rank, which that rank alone writes. The ranks find an inbox by a name that
 * follows from the job's key and the rank (listen.c): a symbolic link to the
 * descriptor in /proc, so that nothing is left when the process is killed.
 *
 * A rank calls another one by its offer in its ring in the other's inbox
 * (call.h). All ranks of the job may map all of an inbox, so one of them can
 * read and forge the messages of others. They have proved the same key;
 * docs/security.md has the threat. Other processes cannot open the file, except
 * those of the same user that may open the descriptors of this one, as with any
 * ring. */
#ifndef PSCOMPY_SHM_INBOX_H
#define PSCOMPY_SHM_INBOX_H

#include "call.h"

#define SHM_INBOX_RANKS SHM_BOARD_BITS
/* The target of the symbolic link: a process's id, and its descriptor of the
 * inbox. */
#define SHM_PLACE "/proc/%d/fd/%d"
#define SHM_PLACE_SIZE 40u
#define SHM_CARD_MAGIC 0x32786f62u /* "box2" */

/* How to reach a rank. Written once, by the owner of the inbox. */
typedef struct shm_card {
    uint32_t magic;
    int32_t rank;
    int32_t pid;
    int32_t bell, knock; /* descriptors of pipes in that process */
    int32_t inbox; /* descriptor of the inbox in that process */
    shm_geometry_t geometry; /* size of each ring in the inbox */
    uint8_t cma; /* shm_cma_mode_t of the rank */
    uint8_t expedited; /* the process is registered for membarrier */
    uint8_t process[SHM_ID_SIZE];
    uint64_t probe; /* address of `process` in that process */
    uint8_t proof[PSC_SIPHASH_SIZE]; /* keyed hash of the fields before */
} shm_card_t;

struct shm_inbox {
    /* Bit r: rank r asks for a connection, has answered, or has written into
     * its ring. */
    shm_board_t board;
    _Alignas(128) shm_card_t card;
};

_Static_assert(sizeof(struct shm_inbox) <= 4096, "one page");

/* True if a rank has set a bit on the board of our inbox. */
static inline bool shm_inbox_pending(const shm_iface_t *iface)
{
    return iface->inbox != NULL &&
           atomic_load_explicit(&iface->inbox->board.groups,
                                memory_order_relaxed) != 0;
}

#endif
