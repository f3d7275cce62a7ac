/* The ready bitmap: one page of an interface in which its peers set bits.
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

#define SHM_BITMAP_WORDS 64u
#define SHM_BITMAP_BITS (64u * SHM_BITMAP_WORDS)
/* stands for "no bit": all bits of the bitmap are taken */
#define SHM_NO_BIT SHM_BITMAP_BITS

typedef struct shm_bitmap {
    /* bit w is set if words[w] is not 0 */
    _Alignas(128) _Atomic uint64_t groups;
    _Alignas(128) _Atomic uint64_t words[SHM_BITMAP_WORDS];
} shm_bitmap_t;

_Static_assert(sizeof(shm_bitmap_t) <= 4096, "one page");

/* Creates a sealed memfd that holds a bitmap. */
psc_status_t shm_bitmap_create(int *fd_p);
/* Maps the bitmap at the start of a file of `bytes` bytes. Returns
 * PSC_ERR_PROTOCOL if `fd` is not such a file. */
psc_status_t shm_bitmap_map(shm_bitmap_t **bitmap_p, int fd, size_t bytes);
void shm_bitmap_unmap(shm_bitmap_t *bitmap);

static inline void shm_bitmap_set(shm_bitmap_t *bitmap, uint32_t bit)
{
    atomic_fetch_or_explicit(&bitmap->words[bit / 64], 1ull << bit % 64,
                             memory_order_release);
    atomic_fetch_or_explicit(&bitmap->groups, 1ull << bit / 64,
                             memory_order_release);
}

/* Reads a word of the bitmap and clears it. */
static inline uint64_t shm_bitmap_take(_Atomic uint64_t *word)
{
    if (atomic_load_explicit(word, memory_order_relaxed) == 0)
        return 0;
    return atomic_exchange_explicit(word, 0, memory_order_acquire);
}
