/* Blocks of the pool: powers of two that are split when a shorter one is
 * needed, and joined again only when no free block is long enough. All
 * functions are called with the pool's lock held. */
#pragma once

#include "segment.h"

/* Highest order of a segment that is split into blocks, which together have up
 * to psc_page_size() << 14 bytes. */
#define PSC_POOL_TOP 14u
/* Order of a large block, which has a segment of its own. */
#define PSC_POOL_LARGE (PSC_POOL_TOP + 1)

typedef struct psc_pool_block {
    psc_block_t head; /* the first member: the part that consumers see */
    psc_link_t link;  /* link in a free list of the pool (psc_pool_t.free) */
    struct psc_pool *pool;
    psc_segment_t *segment;
    size_t len;
    unsigned order;
    bool used;
} psc_pool_block_t;

typedef struct psc_pool {
    psc_lock_t lock;
    /* number of references: by the worker, by blocks in use, and by views */
    atomic_uint refs;
    atomic_bool forked;
    /* protects `worker`, which is not freed while a thread holds this lock */
    psc_lock_t gate;
    psc_worker_t *worker; /* NULL after the worker has ended */
    /* bytes: the sum of the lengths of all segments; max: the limit on this
     * sum */
    uint64_t max, bytes;
    atomic_uint n_segments;
    psc_list_t segments;
    /* the free blocks of shared segments, and those of private ones, by order
     */
    psc_list_t free[PSC_SEGMENT_PRIVATE + 1][PSC_POOL_LARGE + 1];
} psc_pool_t;

/* Return the length of a block of the order `order`, and the order of a block
 * for `nbytes` bytes. */
size_t psc_pool_order_len(unsigned order);
unsigned psc_pool_order(size_t nbytes);
/* Returns the offset of the block in its segment. */
size_t psc_pool_offset(const psc_pool_block_t *block);
/* Add a free block to a segment. Returns NULL if memory is short. */
psc_pool_block_t *psc_pool_block_add(psc_pool_t *pool, psc_segment_t *segment,
                                     size_t offset, unsigned order, size_t len);
void psc_pool_block_forget(psc_pool_block_t *block);
/* Join each two free blocks of the pool that are the halves of one longer
 * block. */
void psc_pool_join_all(psc_pool_t *pool);
/* Put a block into its free list. */
void psc_pool_block_put(psc_pool_block_t *block);
/* Find a free block for `nbytes` bytes in segments of this kind; splits a
 * longer one if necessary. Returns NULL if no block is long enough. The block
 * stays in its free list. */
psc_pool_block_t *psc_pool_find_free(psc_pool_t *pool, psc_segment_kind_t kind,
                                     size_t nbytes);
/* Returns the block that contains the byte at `offset` of the segment, or NULL.
 * Blocks are aligned to their length. */
const psc_pool_block_t *psc_pool_block_at(const psc_segment_t *segment,
                                          size_t offset);
