#include "memory.h"

#include <stdlib.h>

static psc_pool_block_t *pool_block_of(psc_link_t *link)
{
    return psc_container_of(link, psc_pool_block_t, link);
}

size_t psc_pool_order_len(unsigned order)
{
    return (size_t)psc_page_size() << order;
}

unsigned psc_pool_order(size_t nbytes)
{
    unsigned order = 0;

    while (order < PSC_POOL_TOP && psc_pool_order_len(order) < nbytes)
        order++;
    return order < PSC_POOL_TOP ? order : PSC_POOL_LARGE;
}

static psc_pool_block_t **pool_block_at(const psc_segment_t *segment,
                                        size_t offset)
{
    return &segment->places[offset / psc_page_size()];
}

size_t psc_pool_offset(const psc_pool_block_t *block)
{
    return (size_t)((uint8_t *)block->head.base - block->segment->base);
}

void psc_pool_block_forget(psc_pool_block_t *block)
{
    psc_list_remove(&block->link);
    *pool_block_at(block->segment, psc_pool_offset(block)) = NULL;
    free(block);
}

void psc_pool_block_put(psc_pool_block_t *block)
{
    psc_list_push_front(&block->pool->free[block->segment->kind][block->order],
                        &block->link);
}

/* ---- splitting ---- */

psc_pool_block_t *psc_pool_block_add(psc_pool_t *pool, psc_segment_t *segment,
                                     size_t offset, unsigned order, size_t len)
{
    psc_pool_block_t *block = calloc(1, sizeof *block);

    if (!block)
        return NULL;
    block->head.base = segment->base + offset;
    block->pool = pool;
    block->segment = segment;
    block->order = order;
    block->len = len;
    psc_pool_block_put(block);
    *pool_block_at(segment, offset) = block;
    return block;
}

/* Make a free block of this order by splitting a longer one; `lists` are
 * the free lists of one kind. */
static bool pool_split(psc_pool_t *pool, const psc_list_t *lists,
                       unsigned wanted)
{
    unsigned order = wanted + 1;
    psc_pool_block_t *block;

    while (order <= PSC_POOL_TOP && psc_list_empty(&lists[order]))
        order++;
    if (order > PSC_POOL_TOP)
        return false;
    block = pool_block_of(lists[order].next);
    psc_list_remove(&block->link);
    while (order > wanted) {
        order--;
        block->order = order;
        block->len = psc_pool_order_len(order);
        if (!psc_pool_block_add(pool, block->segment,
                                psc_pool_offset(block) + block->len, order,
                                block->len))
            /* no memory for the record of the other half, which is unused until
             * the segment is freed */
            break;
    }
    psc_pool_block_put(block);
    return order == wanted;
}

/* ---- joining ---- */

/* Returns the other half of the block that this one was split from, if that
 * half is free and not split itself; else NULL. */
static psc_pool_block_t *pool_buddy(const psc_pool_block_t *block)
{
    size_t at = psc_pool_offset(block) ^ block->len;
    psc_pool_block_t *buddy;

    if (block->order >= block->segment->top)
        return NULL;
    buddy = *pool_block_at(block->segment, at);
    return buddy && !buddy->used && buddy->order == block->order ? buddy : NULL;
}

static void pool_join(psc_pool_block_t *block, psc_pool_block_t *buddy)
{
    psc_pool_block_t *left =
        block->head.base < buddy->head.base ? block : buddy;

    psc_pool_block_forget(left == block ? buddy : block);
    left->order++;
    left->len *= 2;
    psc_list_remove(&left->link);
    psc_pool_block_put(left);
}

static void pool_join_list(const psc_list_t *list)
{
    psc_link_t *link = list->next;

    while (link != list) {
        psc_pool_block_t *block = pool_block_of(link);
        psc_pool_block_t *buddy = pool_buddy(block);

        link = link->next;
        if (buddy && link == &buddy->link)
            link = link->next;
        if (buddy)
            pool_join(block, buddy);
    }
}

void psc_pool_join_all(psc_pool_t *pool)
{
    for (unsigned order = 0; order < PSC_POOL_TOP; order++) {
        pool_join_list(&pool->free[PSC_SEGMENT_SHARED][order]);
        pool_join_list(&pool->free[PSC_SEGMENT_PRIVATE][order]);
    }
}

/* ---- finding ---- */

/* A large block, made for one array, is reused for arrays that are not much
 * shorter. */
static psc_pool_block_t *pool_find_large(const psc_list_t *list, size_t nbytes)
{
    psc_list_for_each(block, list, psc_pool_block_t, link) {
        if (block->len >= nbytes && block->len - nbytes <= block->len / 4)
            return block;
    }
    return NULL;
}

psc_pool_block_t *psc_pool_find_free(psc_pool_t *pool, psc_segment_kind_t kind,
                                     size_t nbytes)
{
    const psc_list_t *lists = pool->free[kind];
    unsigned order = psc_pool_order(nbytes);

    if (order == PSC_POOL_LARGE)
        return pool_find_large(&lists[order], nbytes);
    if (psc_list_empty(&lists[order]) && !pool_split(pool, lists, order))
        return NULL;
    return pool_block_of(lists[order].next);
}

const psc_pool_block_t *psc_pool_block_at(const psc_segment_t *segment,
                                          size_t offset)
{
    if (segment->top == PSC_POOL_LARGE)
        return segment->places[0];
    for (unsigned order = 0; order <= segment->top; order++) {
        const psc_pool_block_t *block =
            *pool_block_at(segment, offset & ~(psc_pool_order_len(order) - 1));

        if (block && block->order == order)
            return block;
    }
    return NULL;
}
