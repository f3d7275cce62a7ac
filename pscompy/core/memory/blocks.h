/* Blocks of the pool: powers of two that are split when a shorter one is
 * wanted, and joined again only when there is nothing else left to take. With
 * the pool's lock held. */
#ifndef PSCOMPY_CORE_BLOCKS_H
#define PSCOMPY_CORE_BLOCKS_H

#include "segment.h"

#define PSC_POOL_TOP 14u /* a segment for many blocks has 4 KiB << 14 */
#define PSC_POOL_LARGE (PSC_POOL_TOP + 1) /* one block has it alone */

typedef struct psc_pool_block {
    psc_block_t head; /* first: what consumers see */
    psc_link_t link;  /* in a free list */
    struct psc_pool *pool;
    psc_segment_t *segment;
    size_t len;
    unsigned order;
    bool used;
} psc_pool_block_t;

typedef struct psc_pool {
    psc_lock_t lock;
    atomic_uint refs;    /* the worker, blocks in use, views */
    atomic_bool forked;
    psc_lock_t gate;     /* for worker, so that it stays while one looks */
    psc_worker_t *worker; /* NULL: it has ended */
    uint64_t max, bytes; /* of segments */
    atomic_uint n_segments;
    psc_list_t segments;
    psc_list_t free[PSC_POOL_LARGE + 1];
} psc_pool_t;

/* The length of a block of this order, and the order for a length. */
size_t psc_pool_order_len(unsigned order);
unsigned psc_pool_order(size_t nbytes);
/* Where the block begins in its segment. */
size_t psc_pool_offset(const psc_pool_block_t *block);
/* A free block of a segment. Returns NULL if memory is short. */
psc_pool_block_t *psc_pool_block_add(psc_pool_t *pool, psc_segment_t *segment,
                                     size_t offset, unsigned order, size_t len);
void psc_pool_block_forget(psc_pool_block_t *block);
/* Join all free blocks that are halves of one. */
void psc_pool_join_all(psc_pool_t *pool);
/* A free block for so many bytes, split from a longer one if need be; NULL if
 * there is none. It stays in its list. */
psc_pool_block_t *psc_pool_find_free(psc_pool_t *pool, size_t nbytes);
/* The block that these bytes begin in: blocks are aligned to their length. */
const psc_pool_block_t *psc_pool_block_at(const psc_segment_t *segment,
                                          size_t offset);

#endif
