/* The registered pool of a worker: memory that every transport can register
 * before it is used. Shared segments are sealed memory files, so that a peer
 * can map them but only their owner can write. Private segments are for what is
 * received: after a fork, parent and child have copies. Blocks are whole pages
 * of a segment. They are reused last in, first out, so that a reused block is
 * warm in the caches of both sides.
 *
 * Blocks and views may outlive the worker: the pool counts them and is freed
 * with the last. The pool has a lock of its own, held for a few instructions. A
 * slow path (add a segment, or give one up) takes the worker's lock first. */
#pragma once

#include "blocks.h"

/* ---- creation and end ---- */
psc_pool_t *psc_pool_create(psc_worker_t *worker, uint64_t max);
/* The worker ends (its lock is held): undo the registrations with its
 * interfaces. */
void psc_pool_detach(psc_pool_t *pool);
void psc_pool_hold(psc_pool_t *pool);
void psc_pool_drop(psc_pool_t *pool);

/* ---- blocks ---- */
/* The functions block_alloc and block_free of psc_api_t. */
psc_status_t psc_pool_alloc(psc_worker_t *worker, size_t nbytes, uint32_t flags,
                            psc_block_t **block_p);
void psc_pool_give(psc_block_t *block);
/* Add a user's memory to the pool, as a segment of one block, and register it
 * with the worker's interfaces until psc_pool_unpin. With the worker's lock
 * held. */
psc_status_t psc_pool_pin(psc_pool_t *pool, void *base, size_t len,
                          psc_block_t **block_p);
void psc_pool_unpin(psc_pool_t *pool, psc_block_t *block);
/* Returns the segment with the `len` bytes at `base`, which must lie in one
 * used block; NULL if there is none. *offset_p: the offset of `base` in the
 * segment. */
psc_segment_t *psc_pool_find(psc_pool_t *pool, const void *base, size_t len,
                             uint64_t *offset_p);
