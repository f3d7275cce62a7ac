/* The registration cache. It is bounded in number and in bytes, and never
 * returns a registration whose mapping has changed (proof.c). Memory that the
 * program unmaps stays pinned until its address is looked up again, the room is
 * needed, or two sweeps have passed. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache.h"
#include "memory.h"

void ib_cache_open(ib_cache_t *cache, ib_device_t *device, uint32_t n_max,
                   uint64_t bytes_max)
{
    psc_list_init(&cache->holds);
    psc_list_init(&cache->regions);
    psc_list_init(&cache->given_up);
    cache->pd = device->pd;
    cache->windows = device->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW;
    cache->proof = n_max > 0 ? ib_proof_open() : -1;
    cache->n_max = n_max;
    cache->bytes_max = bytes_max;
}

/* ---- giving up ---- */

static void ib_hold_free(ib_hold_t *hold)
{
    if (hold->window)
        ibv_dealloc_mw(hold->window);
    if (hold->mr)
        ibv_dereg_mr(hold->mr);
    free(hold->frames);
    free(hold);
}

static bool ib_hold_idle(const ib_hold_t *hold)
{
    return psc_list_empty(&hold->users) && hold->bindings == 0;
}

void ib_cache_settle(ib_hold_t *hold)
{
    if (!hold->given_up || !ib_hold_idle(hold))
        return;
    psc_list_remove(&hold->link);
    ib_hold_free(hold);
}

void ib_cache_give_up(ib_cache_t *cache, ib_hold_t *hold)
{
    psc_list_remove(&hold->link);
    psc_list_push(&cache->given_up, &hold->link);
    hold->given_up = true;
    ib_cache_settle(hold);
}

/* Gives up a registration of the list `holds`. */
static void ib_cache_drop(ib_cache_t *cache, ib_hold_t *hold)
{
    cache->n--;
    cache->bytes -= hold->len;
    ib_cache_give_up(cache, hold);
}

static void ib_cache_free_all(psc_list_t *holds)
{
    psc_link_t *link;

    while ((link = psc_list_pop(holds)))
        ib_hold_free(psc_container_of(link, ib_hold_t, link));
}

void ib_cache_close(ib_cache_t *cache)
{
    if (!cache->pd)
        return;
    ib_cache_free_all(&cache->holds);
    ib_cache_free_all(&cache->regions);
    ib_cache_free_all(&cache->given_up);
    if (cache->proof >= 0)
        close(cache->proof);
    cache->pd = NULL;
}

/* ---- finding ---- */

static bool ib_hold_covers(const ib_hold_t *hold, const uint8_t *base,
                           size_t len)
{
    return base >= hold->base && len <= hold->len &&
           (size_t)(base - hold->base) <= hold->len - len;
}

/* Memory that an operation in flight uses may not be unmapped, so it needs no
 * proof. */
static bool ib_hold_in_flight(const ib_hold_t *hold, const uint8_t *base,
                              size_t len)
{
    psc_list_for_each(mem, &hold->users, psc_mem_t, user) {
        uint64_t offset = (uintptr_t)base - mem->address;

        if (offset <= mem->len && len <= mem->len - offset)
            return true;
    }
    return false;
}

static const uint8_t *ib_page_of(const uint8_t *at)
{
    return at - (uintptr_t)at % IB_PAGE;
}

static size_t ib_pages_len(const uint8_t *base, size_t len)
{
    size_t before = (uintptr_t)base % IB_PAGE;

    return (before + len + IB_PAGE - 1) / IB_PAGE * IB_PAGE;
}

static bool ib_hold_right(const ib_cache_t *cache, const ib_hold_t *hold,
                          const uint8_t *base, size_t len)
{
    const uint8_t *first = ib_page_of(base);

    return ib_hold_in_flight(hold, base, len) ||
           ib_proof_holds(cache->proof, first, ib_pages_len(base, len),
                          hold->frames + (first - hold->base) / IB_PAGE);
}

static ib_hold_t *ib_cache_find(ib_cache_t *cache, const uint8_t *base,
                                size_t len)
{
    psc_list_for_each(hold, &cache->holds, ib_hold_t, link) {
        if (!ib_hold_covers(hold, base, len))
            continue;
        if (ib_hold_right(cache, hold, base, len)) {
            psc_list_remove(&hold->link);
            psc_list_push(&cache->holds, &hold->link);
            return hold;
        }
        cache->stale++;
        ib_cache_drop(cache, hold);
    }
    return NULL;
}

/* ---- adding ---- */

static bool ib_cache_make_room(ib_cache_t *cache, size_t len)
{
    if (len > cache->bytes_max)
        return false;
    psc_list_for_each(hold, &cache->holds, ib_hold_t, link) {
        if (cache->n < cache->n_max && cache->bytes + len <= cache->bytes_max)
            break;
        if (ib_hold_idle(hold))
            ib_cache_drop(cache, hold);
    }
    return cache->n < cache->n_max && cache->bytes + len <= cache->bytes_max;
}

static ib_hold_t *ib_hold_make(ib_cache_t *cache, const uint8_t *base,
                               size_t len, int access)
{
    ib_hold_t *hold = calloc(1, sizeof(*hold));

    if (!hold)
        return NULL;
    psc_list_init(&hold->link);
    psc_list_init(&hold->users);
    hold->base = (uint8_t *)(uintptr_t)base;
    hold->len = len;
    if (cache->windows && access & IBV_ACCESS_LOCAL_WRITE)
        access |= IBV_ACCESS_MW_BIND;
    hold->mr = ibv_reg_mr(cache->pd, hold->base, len, access);
    if (hold->mr) {
        cache->registered++;
        return hold;
    }
    free(hold);
    return NULL;
}

/* Read-only memory is not kept, because the first write would replace its
 * pages. */
static ib_hold_t *ib_cache_add(ib_cache_t *cache, const uint8_t *base,
                               size_t len)
{
    size_t pages = ib_pages_len(base, len);
    ib_hold_t *hold = NULL;

    if (ib_cache_make_room(cache, pages))
        hold = ib_hold_make(cache, ib_page_of(base), pages,
                            IBV_ACCESS_LOCAL_WRITE);
    if (!hold)
        return NULL;
    hold->frames = calloc(pages / IB_PAGE, sizeof(*hold->frames));
    if (!hold->frames ||
        !ib_proof_take(cache->proof, hold->base, hold->len, hold->frames)) {
        ib_hold_free(hold);
        return NULL;
    }
    cache->n++;
    cache->bytes += pages;
    psc_list_push(&cache->holds, &hold->link);
    return hold;
}

/* No proof is needed: the user that registered a region deregisters it before
 * unmapping the memory. */
static ib_hold_t *ib_cache_region(ib_cache_t *cache, const uint8_t *base,
                                  size_t len)
{
    psc_list_for_each(hold, &cache->regions, ib_hold_t, link) {
        if (ib_hold_covers(hold, base, len))
            return hold;
    }
    return NULL;
}

ib_hold_t *ib_cache_get(ib_cache_t *cache, const uint8_t *base, size_t len)
{
    ib_hold_t *hold = ib_cache_region(cache, base, len);

    if (!hold && cache->proof >= 0)
        hold = ib_cache_find(cache, base, len);
    if (hold)
        cache->found++;
    else if (cache->proof >= 0)
        hold = ib_cache_add(cache, base, len);
    if (hold)
        hold->used = true;
    else
        cache->not_kept++;
    return hold;
}

/* Read-only memory can still be sent from. */
ib_hold_t *ib_cache_register(ib_cache_t *cache, uint8_t *base, size_t len,
                             bool region)
{
    ib_hold_t *hold =
        ib_hold_make(cache, base, len,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                         IBV_ACCESS_REMOTE_READ);

    if (!hold && errno == EFAULT)
        hold = ib_hold_make(cache, base, len, IBV_ACCESS_REMOTE_READ);
    if (!hold)
        return NULL;
    hold->remote = true;
    hold->given_up = !region;
    psc_list_push(region ? &cache->regions : &cache->given_up, &hold->link);
    return hold;
}

/* ---- sweeping ---- */

void ib_cache_sweep(ib_cache_t *cache)
{
    psc_list_for_each(hold, &cache->holds, ib_hold_t, link) {
        if (!hold->used && ib_hold_idle(hold))
            ib_cache_drop(cache, hold);
        else
            hold->used = false;
    }
}
