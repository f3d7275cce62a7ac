/* Blocks of the pool: powers of two that are split when a smaller one is
 * wanted, and joined again only when there is nothing else left to take. */
#include "pool.h"

#include <stdlib.h>

#define POOL_ROUND ((size_t)2 << 20) /* of what is too large for blocks */
/* Below it a block's pages come one by one: a huge page would be too much. */
#define POOL_WARM_MIN ((size_t)64 << 10)

static psc_pool_block_t *pool_block_of(psc_link_t *link)
{
    return psc_container_of(link, psc_pool_block_t, link);
}

static size_t pool_order_len(unsigned order)
{
    return (size_t)psc_page_size() << order;
}

static unsigned pool_order(size_t nbytes)
{
    unsigned order = 0;

    while (order < PSC_POOL_TOP && pool_order_len(order) < nbytes)
        order++;
    return order < PSC_POOL_TOP ? order : PSC_POOL_LARGE;
}

static psc_pool_block_t **pool_place(const psc_segment_t *segment,
                                     size_t offset)
{
    return &segment->places[offset / psc_page_size()];
}

static size_t pool_offset(const psc_pool_block_t *block)
{
    return (size_t)((uint8_t *)block->head.base - block->segment->base);
}

/* ---- life ---- */

psc_pool_t *psc_pool_create(psc_worker_t *worker, uint64_t max)
{
    psc_pool_t *pool = calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    atomic_init(&pool->refs, 1);
    pool->worker = worker;
    pool->max = max;
    psc_list_init(&pool->segments);
    for (unsigned i = 0; i <= PSC_POOL_LARGE; i++)
        psc_list_init(&pool->free[i]);
    return pool;
}

void psc_pool_hold(psc_pool_t *pool)
{
    atomic_fetch_add_explicit(&pool->refs, 1, memory_order_relaxed);
}

static void pool_block_forget(psc_pool_block_t *block)
{
    psc_list_remove(&block->link);
    *pool_place(block->segment, pool_offset(block)) = NULL;
    free(block);
}

/* Nothing of it is in use. */
static void pool_segment_end(psc_pool_t *pool, psc_segment_t *segment)
{
    size_t pages = segment->fd < 0 ? 1 /* pinned: one block */
                                   : segment->len / psc_page_size() - 1;

    for (size_t i = 0; i < pages; i++) {
        if (segment->places[i])
            pool_block_forget(segment->places[i]);
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

/* Now rather than at its first message; what cannot will be tried again. */
static void pool_register(psc_segment_t *segment, psc_worker_t *worker)
{
    for (int i = 0; i < worker->n_ifaces; i++) {
        if (worker->ifaces[i].attr.caps & (PSC_CAP_PUT | PSC_CAP_GET))
            psc_segment_mem(segment, &worker->ifaces[i]);
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
    pool->bytes += segment->len; /* taken off when it ends, as for others */
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

/* ---- splitting and joining ---- */

static psc_pool_block_t *pool_block_add(psc_pool_t *pool,
                                        psc_segment_t *segment, size_t offset,
                                        unsigned order, size_t len)
{
    psc_pool_block_t *block = calloc(1, sizeof *block);

    if (!block)
        return NULL;
    block->head.base = segment->base + offset;
    block->pool = pool;
    block->segment = segment;
    block->order = order;
    block->len = len;
    psc_list_push_front(&pool->free[order], &block->link);
    *pool_place(segment, offset) = block;
    return block;
}

/* Make a free block of this order out of a longer one. */
static bool pool_split(psc_pool_t *pool, unsigned wanted)
{
    unsigned order = wanted + 1;
    psc_pool_block_t *block;

    while (order <= PSC_POOL_TOP && psc_list_empty(&pool->free[order]))
        order++;
    if (order > PSC_POOL_TOP)
        return false;
    block = pool_block_of(pool->free[order].next);
    psc_list_remove(&block->link);
    while (order > wanted) {
        order--;
        block->order = order;
        block->len = pool_order_len(order);
        if (!pool_block_add(pool, block->segment,
                            pool_offset(block) + block->len, order,
                            block->len))
            break; /* the other half is lost until its segment goes */
    }
    psc_list_push_front(&pool->free[order], &block->link);
    return order == wanted;
}

/* The other half of what it was split from, if that is free as a whole. */
static psc_pool_block_t *pool_buddy(const psc_pool_block_t *block)
{
    size_t at = pool_offset(block) ^ block->len;
    psc_pool_block_t *buddy;

    if (block->order >= block->segment->top)
        return NULL;
    buddy = *pool_place(block->segment, at);
    return buddy && !buddy->used && buddy->order == block->order ? buddy
                                                                 : NULL;
}

static void pool_join(psc_pool_block_t *block, psc_pool_block_t *buddy)
{
    psc_pool_t *pool = block->pool;
    psc_pool_block_t *left =
        block->head.base < buddy->head.base ? block : buddy;

    pool_block_forget(left == block ? buddy : block);
    left->order++;
    left->len *= 2;
    psc_list_remove(&left->link);
    psc_list_push_front(&pool->free[left->order], &left->link);
}

static void pool_join_all(psc_pool_t *pool)
{
    for (unsigned order = 0; order < PSC_POOL_TOP; order++) {
        psc_link_t *link = pool->free[order].next;

        while (link != &pool->free[order]) {
            psc_pool_block_t *block = pool_block_of(link);
            psc_pool_block_t *buddy = pool_buddy(block);

            link = link->next;
            if (buddy && link == &buddy->link)
                link = link->next;
            if (buddy)
                pool_join(block, buddy);
        }
    }
}

/* ---- taking ---- */

/* One that was made for a single array serves one that is not much shorter. */
static psc_pool_block_t *pool_find_large(psc_pool_t *pool, size_t nbytes)
{
    psc_list_for_each(block, &pool->free[PSC_POOL_LARGE], psc_pool_block_t,
                      link) {
        if (block->len >= nbytes && block->len - nbytes <= block->len / 4)
            return block;
    }
    return NULL;
}

static psc_pool_block_t *pool_find_free(psc_pool_t *pool, size_t nbytes)
{
    unsigned order = pool_order(nbytes);

    if (order == PSC_POOL_LARGE)
        return pool_find_large(pool, nbytes);
    if (psc_list_empty(&pool->free[order]) && !pool_split(pool, order))
        return NULL;
    return pool_block_of(pool->free[order].next);
}

/* One that is there already, or NULL. */
static psc_pool_block_t *pool_take(psc_pool_t *pool, size_t nbytes)
{
    psc_pool_block_t *block;

    psc_lock_acquire(&pool->lock);
    block = pool_find_free(pool, nbytes);
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
    psc_list_push_front(&pool->free[block->order], &block->link);
    psc_lock_release(&pool->lock);
    psc_pool_drop(pool);
}

/* ---- growing ---- */

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

/* Of a segment for many blocks, the longest that there is room for. */
static unsigned pool_choose_top(psc_pool_t *pool, unsigned order)
{
    unsigned top = PSC_POOL_TOP;

    while (top > order &&
           pool->bytes + pool_order_len(top) + psc_page_size() > pool->max)
        top--;
    return top;
}

static psc_status_t pool_add_segment(psc_pool_t *pool, size_t nbytes)
{
    unsigned order = pool_order(nbytes), top = PSC_POOL_LARGE;
    size_t len = (nbytes + POOL_ROUND - 1) & ~(POOL_ROUND - 1);
    psc_segment_t *segment;
    psc_status_t status;

    if (order < PSC_POOL_LARGE) {
        pool_make_room(pool, pool_order_len(order) + psc_page_size());
        top = pool_choose_top(pool, order);
        len = pool_order_len(top);
    } else {
        pool_make_room(pool, len + psc_page_size());
    }
    if (len < nbytes || pool->bytes + len + psc_page_size() > pool->max)
        return PSC_ERR_NO_RESOURCE;
    status = psc_segment_create(len, &segment);
    if (status != PSC_OK)
        return status;
    segment->top = top;
    psc_list_push(&pool->segments, &segment->link);
    atomic_fetch_add(&pool->n_segments, 1);
    pool->bytes += segment->len;
    return pool_block_add(pool, segment, 0, top, len) ? PSC_OK
                                                      : PSC_ERR_NO_MEMORY;
}

/* With the worker's lock held: afterwards there is such a block. */
static psc_status_t pool_grow(psc_pool_t *pool, size_t nbytes)
{
    psc_status_t status = PSC_OK;

    if (nbytes > pool->max)
        return PSC_ERR_NO_RESOURCE;
    psc_lock_acquire(&pool->lock);
    pool_join_all(pool);
    if (!pool_find_free(pool, nbytes))
        status = pool_add_segment(pool, nbytes);
    psc_lock_release(&pool->lock);
    return status;
}

static psc_status_t pool_grow_entering(psc_worker_t *worker, size_t nbytes,
                                       uint32_t flags)
{
    psc_status_t status = psc_worker_enter(worker, flags);

    if (status != PSC_OK)
        return status;
    status = pool_grow(worker->pool, nbytes);
    if (status == PSC_ERR_NO_RESOURCE)
        worker->counters.value[PSC_COUNTER_pool_exhausted]++;
    psc_worker_leave(worker);
    return status;
}

psc_status_t psc_pool_alloc(psc_worker_t *worker, size_t nbytes,
                            uint32_t flags, psc_block_t **block_p)
{
    psc_pool_block_t *block;

    if (atomic_load_explicit(&worker->forked, memory_order_relaxed))
        return PSC_ERR_FORKED;
    while (!(block = pool_take(worker->pool, nbytes))) {
        psc_status_t status = pool_grow_entering(worker, nbytes, flags);

        if (status != PSC_OK)
            return status;
    }
    if (nbytes >= POOL_WARM_MIN)
        psc_segment_warm(block->segment, pool_offset(block), nbytes);
    *block_p = &block->head;
    return PSC_OK;
}

/* ---- finding ---- */

/* The block that these bytes begin in: blocks are aligned to their length. */
static const psc_pool_block_t *pool_block_at(const psc_segment_t *segment,
                                             size_t offset)
{
    if (segment->top == PSC_POOL_LARGE)
        return segment->places[0];
    for (unsigned order = 0; order <= segment->top; order++) {
        const psc_pool_block_t *block =
            *pool_place(segment, offset & ~(pool_order_len(order) - 1));

        if (block && block->order == order)
            return block;
    }
    return NULL;
}

static psc_segment_t *pool_find_locked(psc_pool_t *pool, const uint8_t *base,
                                       size_t len, uint64_t *offset_p)
{
    psc_list_for_each(segment, &pool->segments, psc_segment_t, link) {
        const psc_pool_block_t *block;
        size_t offset = (size_t)(base - segment->base);

        if (base < segment->base || offset >= segment->len - psc_page_size())
            continue;
        block = pool_block_at(segment, offset);
        if (!block || !block->used ||
            len > block->len - (offset - pool_offset(block)))
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
