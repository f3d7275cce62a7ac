/* The pool: takes blocks from segments, adds segments and gives them up. */
#include "memory.h"

#include <stdlib.h>

#include "../worker.h"

/* The lengths of large blocks are rounded up to a multiple of this. */
#define POOL_ROUND ((size_t)2 << 20)
/* The pages of blocks smaller than this are created one by one when they are
 * used, not in advance as huge pages (psc_segment_warm), to save memory. */
#define POOL_WARM_MIN ((size_t)64 << 10)

/* ---- creation and end ---- */

psc_pool_t *psc_pool_create(psc_worker_t *worker, uint64_t max)
{
    psc_pool_t *pool = calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    atomic_init(&pool->refs, 1);
    pool->worker = worker;
    pool->max = max;
    psc_list_init(&pool->segments);
    for (unsigned i = 0; i <= PSC_POOL_LARGE; i++) {
        psc_list_init(&pool->free[PSC_SEGMENT_SHARED][i]);
        psc_list_init(&pool->free[PSC_SEGMENT_PRIVATE][i]);
    }
    return pool;
}

void psc_pool_hold(psc_pool_t *pool)
{
    atomic_fetch_add_explicit(&pool->refs, 1, memory_order_relaxed);
}

/* Unlink and free a segment without blocks in use. */
static void pool_segment_end(psc_pool_t *pool, psc_segment_t *segment)
{
    size_t pages = segment->kind == PSC_SEGMENT_PINNED
                       ? 1 /* it has one block */
                       : segment->len / psc_page_size() - 1;

    for (size_t i = 0; i < pages; i++) {
        if (segment->places[i])
            psc_pool_block_forget(segment->places[i]);
    }
    psc_list_remove(&segment->link);
    atomic_fetch_sub(&pool->n_segments, 1);
    pool->bytes -= segment->len;
    psc_segment_retire(segment);
    psc_segment_destroy(segment);
}

void psc_pool_drop(psc_pool_t *pool)
{
    if (atomic_fetch_sub(&pool->refs, 1) != 1)
        return;
    psc_list_for_each(segment, &pool->segments, psc_segment_t, link)
        pool_segment_end(pool, segment);
    free(pool);
}

void psc_pool_detach(psc_pool_t *pool)
{
    psc_lock_acquire(&pool->lock);
    psc_list_for_each(segment, &pool->segments, psc_segment_t, link)
        psc_segment_unregister(segment, pool->worker);
    psc_lock_release(&pool->lock);
    psc_lock_acquire(&pool->gate);
    pool->worker = NULL;
    psc_lock_release(&pool->gate);
    psc_pool_drop(pool);
}

/* ---- pinned memory ---- */

/* Register the pinned segment now rather than at its first message. An
 * interface that fails here is tried again at that message. */
static void pool_register(psc_segment_t *segment, psc_worker_t *worker)
{
    psc_iface_for_each(slot, &worker->interfaces) {
        if (slot->attr.caps & (PSC_CAP_PUT | PSC_CAP_GET))
            psc_segment_mem(segment, slot);
    }
}

psc_status_t psc_pool_pin(psc_pool_t *pool, void *base, size_t len,
                          psc_block_t **block_p)
{
    psc_pool_block_t *block = calloc(1, sizeof *block);
    psc_status_t status = PSC_ERR_NO_MEMORY;
    psc_segment_t *segment;

    if (block)
        status = psc_segment_create_pinned(base, len, &segment);
    if (status != PSC_OK) {
        free(block);
        return status;
    }
    *block = (psc_pool_block_t){.head = {base, len},
                                .pool = pool,
                                .segment = segment,
                                .order = PSC_POOL_LARGE,
                                .len = len,
                                .used = true};
    psc_list_init(&block->link);
    segment->top = PSC_POOL_LARGE;
    segment->used = 1;
    segment->places[0] = block;
    psc_lock_acquire(&pool->lock);
    psc_list_push(&pool->segments, &segment->link);
    atomic_fetch_add(&pool->n_segments, 1);
    /* pool_segment_end subtracts the length again */
    pool->bytes += segment->len;
    pool->max += segment->len;
    psc_lock_release(&pool->lock);
    pool_register(segment, pool->worker);
    *block_p = &block->head;
    return PSC_OK;
}

void psc_pool_unpin(psc_pool_t *pool, psc_block_t *head)
{
    psc_pool_block_t *block = psc_container_of(head, psc_pool_block_t, head);
    psc_segment_t *segment = block->segment;

    psc_lock_acquire(&pool->lock);
    pool->max -= segment->len;
    psc_segment_unregister(segment, pool->worker);
    pool_segment_end(pool, segment);
    psc_lock_release(&pool->lock);
}

/* ---- taking blocks, and giving them back ---- */

/* Take a free block. Returns NULL if there is none. */
static psc_pool_block_t *pool_take(psc_pool_t *pool, psc_segment_kind_t kind,
                                   size_t nbytes)
{
    psc_pool_block_t *block;

    psc_lock_acquire(&pool->lock);
    block = psc_pool_find_free(pool, kind, nbytes);
    if (block) {
        psc_list_remove(&block->link);
        block->used = true;
        block->head.nbytes = nbytes;
        block->segment->used++;
        psc_pool_hold(pool);
    }
    psc_lock_release(&pool->lock);
    return block;
}

void psc_pool_give(psc_block_t *head)
{
    psc_pool_block_t *block = psc_container_of(head, psc_pool_block_t, head);
    psc_pool_t *pool = block->pool;

    if (atomic_load(&pool->forked))
        return;
    psc_lock_acquire(&pool->lock);
    block->used = false;
    block->segment->used--;
    psc_pool_block_put(block);
    psc_lock_release(&pool->lock);
    psc_pool_drop(pool);
}

/* ---- adding segments ---- */

static void pool_make_room(psc_pool_t *pool, size_t len)
{
    psc_list_for_each(segment, &pool->segments, psc_segment_t, link) {
        if (pool->bytes + len <= pool->max)
            return;
        if (segment->used > 0)
            continue;
        psc_segment_unregister(segment, pool->worker);
        pool_segment_end(pool, segment);
    }
}

/* Returns the order of a new segment that is split into blocks: the highest
 * order (at most PSC_POOL_TOP) with which the pool stays below pool->max, but
 * not less than `order`. */
static unsigned pool_choose_top(psc_pool_t *pool, unsigned order)
{
    unsigned top = PSC_POOL_TOP;

    while (top > order &&
           pool->bytes + psc_pool_order_len(top) + psc_page_size() > pool->max)
        top--;
    return top;
}

static psc_status_t pool_add_segment(psc_pool_t *pool, psc_segment_kind_t kind,
                                     size_t nbytes)
{
    unsigned order = psc_pool_order(nbytes), top = PSC_POOL_LARGE;
    size_t len = (nbytes + POOL_ROUND - 1) & ~(POOL_ROUND - 1);
    psc_segment_t *segment;
    psc_status_t status;

    if (order < PSC_POOL_LARGE) {
        pool_make_room(pool, psc_pool_order_len(order) + psc_page_size());
        top = pool_choose_top(pool, order);
        len = psc_pool_order_len(top);
    } else {
        pool_make_room(pool, len + psc_page_size());
    }
    if (len < nbytes || pool->bytes + len + psc_page_size() > pool->max)
        return PSC_ERR_NO_RESOURCE;
    status = psc_segment_create(len, kind, &segment);
    if (status != PSC_OK)
        return status;
    segment->top = top;
    psc_list_push(&pool->segments, &segment->link);
    atomic_fetch_add(&pool->n_segments, 1);
    pool->bytes += segment->len;
    if (psc_pool_block_add(pool, segment, 0, top, len))
        return PSC_OK;
    pool_segment_end(pool, segment);
    return PSC_ERR_NO_MEMORY;
}

/* With the worker's lock held: make sure that the pool has a free block for
 * `nbytes` bytes. */
static psc_status_t pool_grow(psc_pool_t *pool, psc_segment_kind_t kind,
                              size_t nbytes)
{
    psc_status_t status = PSC_OK;

    if (nbytes > pool->max)
        return PSC_ERR_NO_RESOURCE;
    psc_lock_acquire(&pool->lock);
    psc_pool_join_all(pool);
    if (!psc_pool_find_free(pool, kind, nbytes))
        status = pool_add_segment(pool, kind, nbytes);
    psc_lock_release(&pool->lock);
    return status;
}

static psc_status_t pool_grow_entering(psc_worker_t *worker,
                                       psc_segment_kind_t kind, size_t nbytes,
                                       uint32_t flags)
{
    psc_status_t status = psc_worker_enter(worker, flags);

    if (status != PSC_OK)
        return status;
    status = pool_grow(worker->memory.pool, kind, nbytes);
    if (status == PSC_ERR_NO_RESOURCE)
        worker->counters.value[PSC_COUNTER_pool_exhausted]++;
    psc_worker_leave(worker);
    return status;
}

psc_status_t psc_pool_alloc(psc_worker_t *worker, size_t nbytes, uint32_t flags,
                            psc_block_t **block_p)
{
    psc_segment_kind_t kind =
        flags & PSC_FLAG_PRIVATE ? PSC_SEGMENT_PRIVATE : PSC_SEGMENT_SHARED;
    psc_pool_block_t *block;

    if (atomic_load_explicit(&worker->forked, memory_order_relaxed))
        return PSC_ERR_FORKED;
    while (!(block = pool_take(worker->memory.pool, kind, nbytes))) {
        psc_status_t status = pool_grow_entering(worker, kind, nbytes, flags);

        if (status != PSC_OK)
            return status;
    }
    if (nbytes >= POOL_WARM_MIN)
        psc_segment_warm(block->segment, psc_pool_offset(block), nbytes);
    *block_p = &block->head;
    return PSC_OK;
}

/* ---- finding the segment of a buffer ---- */

static psc_segment_t *pool_find_locked(psc_pool_t *pool, const uint8_t *base,
                                       size_t len, uint64_t *offset_p)
{
    psc_list_for_each(segment, &pool->segments, psc_segment_t, link) {
        const psc_pool_block_t *block;
        size_t offset = (size_t)(base - segment->base);

        if (base < segment->base || offset >= segment->len - psc_page_size())
            continue;
        block = psc_pool_block_at(segment, offset);
        if (!block || !block->used ||
            len > block->len - (offset - psc_pool_offset(block)))
            return NULL;
        *offset_p = offset;
        return segment;
    }
    return NULL;
}

psc_segment_t *psc_pool_find(psc_pool_t *pool, const void *base, size_t len,
                             uint64_t *offset_p)
{
    psc_segment_t *segment;

    if (atomic_load_explicit(&pool->n_segments, memory_order_relaxed) == 0)
        return NULL;
    psc_lock_acquire(&pool->lock);
    segment = pool_find_locked(pool, base, len, offset_p);
    psc_lock_release(&pool->lock);
    return segment;
}
