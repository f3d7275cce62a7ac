/* The board: one page of an interface in which its peers set bits.
 *
 * An interface gives each of its connections a bit. A peer sets that bit after
 * it has published a record into a ring that the interface does not read in
 * every pass (active.c). All peers map the same page, so any of them may set or
 * clear the bits of others: a bit is a hint, and a receiver that relies on it
 * reads the rings from time to time.
 *
 * A peer sets its bit in one of `words`, then the bit of this word in `groups`.
 * Both are releases, and the receiver acquires them in the opposite order. So a
 * receiver that sees a bit also sees the record that was published before. */
#pragma once

#include "ring.h"

#define SHM_BOARD_WORDS 64u
#define SHM_BOARD_BITS (64u * SHM_BOARD_WORDS)
/* stands for "no bit": all bits of the board are taken */
#define SHM_NO_BIT SHM_BOARD_BITS

typedef struct shm_board {
    /* bit w is set if words[w] is not 0 */
    _Alignas(128) _Atomic uint64_t groups;
    _Alignas(128) _Atomic uint64_t words[SHM_BOARD_WORDS];
} shm_board_t;

_Static_assert(sizeof(shm_board_t) <= 4096, "one page");

/* Creates a sealed memfd that holds a board. */
psc_status_t shm_board_create(int *fd_p);
/* Maps the board at the start of a file of `bytes` bytes. Returns
 * PSC_ERR_PROTOCOL if `fd` is not such a file. */
psc_status_t shm_board_map(shm_board_t **board_p, int fd, size_t bytes);
void shm_board_unmap(shm_board_t *board);

static inline void shm_board_set(shm_board_t *board, uint32_t bit)
{
    atomic_fetch_or_explicit(&board->words[bit / 64], 1ull << bit % 64,
                             memory_order_release);
    atomic_fetch_or_explicit(&board->groups, 1ull << bit / 64,
                             memory_order_release);
}

/* Reads a word of the board and clears it. */
static inline uint64_t shm_board_take(_Atomic uint64_t *word)
{
    if (atomic_load_explicit(word, memory_order_relaxed) == 0)
        return 0;
    return atomic_exchange_explicit(word, 0, memory_order_acquire);
}
