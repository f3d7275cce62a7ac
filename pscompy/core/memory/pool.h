/* The registered pool of a worker: memory that every transport may know
 * beforehand. Segments are sealed memory files, so that a peer can map them
 * but nobody but their owner can write; blocks are cut out of them, whole pages
 * each, and used again last in first out, so that a recycled one is warm on
 * both sides.
 *
 * Blocks and views live longer than their worker: the pool counts them and goes
 * with the last. It has a lock of its own, held for a few instructions, and a
 * slow path (a new segment, an old one given up) that takes the worker's
 * before. */
#ifndef PSCOMPY_CORE_POOL_H
#define PSCOMPY_CORE_POOL_H

#include "blocks.h"

/* ---- life ---- */
psc_pool_t *psc_pool_create(psc_worker_t *worker, uint64_t max);
/* The worker ends (its lock is held): give back what its interfaces know. */
void psc_pool_detach(psc_pool_t *pool);
void psc_pool_hold(psc_pool_t *pool);
void psc_pool_drop(psc_pool_t *pool);

/* ---- blocks ---- */
/* These two are block_alloc and block_free of psc_api_t. */
psc_status_t psc_pool_alloc(psc_worker_t *worker, size_t nbytes, uint32_t flags,
                            psc_block_t **block_p);
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

#endif
