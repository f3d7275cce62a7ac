/* The registered pool of a worker: memory that every transport may know
 * beforehand. Segments are sealed memory files, so that a peer can map them
 * but nobody but their owner can write; blocks are cut out of them, whole pages
 * each, and used again last in first out, so that a recycled one is warm on
 * both sides.
 *
 * Blocks and views live longer than their worker: the pool counts them and goes
 * with the last. It has a lock of its own, held for a few instructions, and a
 * slow path (a new segment, an old one given up) that takes the worker's
 * before. Private to the core. */
#ifndef PSCOMPY_CORE_POOL_H
#define PSCOMPY_CORE_POOL_H

#include "pscompy/transport/kit/page.h"
#include "../worker.h"

#define PSC_POOL_TOP 14u /* a segment for many blocks has 4 KiB << 14 */
#define PSC_POOL_LARGE (PSC_POOL_TOP + 1) /* one block has it alone */

typedef struct psc_segment psc_segment_t;

struct psc_segment {
    psc_link_t link; /* pool's segments */
    uint8_t *base;
    size_t len;      /* with its identity, the last page */
    int fd;          /* -1: pinned memory, which is its user's */
    unsigned top;    /* order of the whole, or LARGE */
    uint32_t used;   /* blocks in use */
    struct psc_pool_block **places; /* the block that begins at each page */
    atomic_bool *warm; /* whether each span of a huge page is there */
    psc_mem_t *mem[PSC_IFACES_MAX]; /* guarded by the worker's lock */
};

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

/* ---- life ---- */
psc_pool_t *psc_pool_create(psc_worker_t *worker, uint64_t max);
/* The worker ends (its lock is held): give back what its interfaces know. */
void psc_pool_detach(psc_pool_t *pool);
void psc_pool_hold(psc_pool_t *pool);
void psc_pool_drop(psc_pool_t *pool);

/* ---- blocks ---- */
/* These two are block_alloc and block_free of psc_api_t. */
psc_status_t psc_pool_alloc(psc_worker_t *worker, size_t nbytes,
                            uint32_t flags, psc_block_t **block_p);
void psc_pool_give(psc_block_t *block);
/* Memory of a user, which the pool's transports get to know until it is given
 * back: a segment of one block. With the worker's lock held. */
psc_status_t psc_pool_pin(psc_pool_t *pool, void *base, size_t len,
                          psc_block_t **block_p);
void psc_pool_unpin(psc_pool_t *pool, psc_block_t *block);
/* The segment that holds these bytes of one block in use, or NULL; *offset_p:
 * where they begin in it. */
psc_segment_t *psc_pool_find(psc_pool_t *pool, const void *base, size_t len,
                             uint64_t *offset_p);

/* ---- segment.c ---- */
/* Blocks are whole pages, so that keeping a view of one (psc_map_t) leaves its
 * neighbours as they are; the identity is the page behind them. */
psc_status_t psc_segment_create(size_t len, psc_segment_t **segment_p);
psc_status_t psc_segment_create_pinned(void *base, size_t len,
                                       psc_segment_t **segment_p);
void psc_segment_destroy(psc_segment_t *segment);
/* Tell whoever has it mapped that it is of no more use. */
void psc_segment_retire(psc_segment_t *segment);
/* What this interface knows it by, registered when first asked for; NULL: it
 * cannot be. With the worker's lock held, as is unregister. */
psc_mem_t *psc_segment_mem(psc_segment_t *segment, psc_iface_slot_t *slot);
void psc_segment_unregister(psc_segment_t *segment, psc_worker_t *worker);
/* Have the pages of these bytes made, huge if that can be had; any thread. */
void psc_segment_warm(psc_segment_t *segment, size_t offset, size_t len);

#endif
