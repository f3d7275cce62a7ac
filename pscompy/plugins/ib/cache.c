/* The registration cache. It is bounded in number and in bytes, and never
 * returns a registration whose addresses have been mapped anew (proof.c).
 * Memory that the program unmaps stays pinned until its address is looked up
 * again, the room in the cache is needed, or ib_cache_sweep() has been called
 * twice without a use in between. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache.h"

void ib_cache_open(ib_cache_t *cache, ib_device_t *device, uint32_t n_max,
                   uint64_t bytes_max)
{
    psc_list_init(&cache->regs);
    psc_list_init(&cache->regions);
    psc_list_init(&cache->given_up);
    cache->pd = device->pd;
    cache->windows = device->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW;
    cache->proof = n_max > 0 && device->forks ? ib_proof_open() : -1;
    cache->n_max = n_max;
    cache->bytes_max = bytes_max;
}

/* ---- giving registrations up ---- */

static void ib_reg_free(ib_reg_t *reg)
{
    if (reg->window)
        ibv_dealloc_mw(reg->window);
    if (reg->mr)
        ibv_dereg_mr(reg->mr);
    free(reg->frames);
    free(reg);
}

static bool ib_reg_idle(const ib_reg_t *reg)
{
    return psc_list_empty(&reg->users) && reg->bindings == 0;
}

void ib_cache_settle(ib_reg_t *reg)
{
    if (!reg->given_up || !ib_reg_idle(reg))
        return;
    psc_list_remove(&reg->link);
    ib_reg_free(reg);
}

void ib_cache_give_up(ib_cache_t *cache, ib_reg_t *reg)
{
    psc_list_remove(&reg->link);
    psc_list_push(&cache->given_up, &reg->link);
    reg->given_up = true;
    ib_cache_settle(reg);
}

/* Removes a registration from the list `regs`, so that it is not found again.
 * It is freed when no psc_mem_t and no bind request uses it. */
static void ib_cache_drop(ib_cache_t *cache, ib_reg_t *reg)
{
    cache->n--;
    cache->bytes -= reg->len;
    ib_cache_give_up(cache, reg);
}

static void ib_cache_free_all(psc_list_t *regs)
{
    psc_link_t *link;

    while ((link = psc_list_pop(regs)))
        ib_reg_free(psc_container_of(link, ib_reg_t, link));
}

void ib_cache_close(ib_cache_t *cache)
{
    if (!cache->pd)
        return;
    ib_cache_free_all(&cache->regs);
    ib_cache_free_all(&cache->regions);
    ib_cache_free_all(&cache->given_up);
    if (cache->proof >= 0)
        close(cache->proof);
    cache->pd = NULL;
}

/* ---- finding ---- */

static bool ib_reg_covers(const ib_reg_t *reg, const uint8_t *base, size_t len)
{
    return base >= reg->base && len <= reg->len &&
           (size_t)(base - reg->base) <= reg->len - len;
}

/* Returns true if a psc_mem_t in use covers this memory. Then the program may
 * not unmap the memory, so no proof is needed that it is still mapped. */
static bool ib_reg_in_flight(const ib_reg_t *reg, const uint8_t *base,
                             size_t len)
{
    psc_list_for_each(user, &reg->users, ib_user_t, link) {
        uint64_t offset = (uintptr_t)base - user->address;

        if (offset <= user->len && len <= user->len - offset)
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

static bool ib_reg_right(const ib_cache_t *cache, const ib_reg_t *reg,
                         const uint8_t *base, size_t len)
{
    const uint8_t *first = ib_page_of(base);

    return ib_reg_in_flight(reg, base, len) ||
           ib_proof_holds(cache->proof, first, ib_pages_len(base, len),
                          reg->frames + (first - reg->base) / IB_PAGE);
}

static ib_reg_t *ib_cache_find(ib_cache_t *cache, const uint8_t *base,
                               size_t len)
{
    psc_list_for_each(reg, &cache->regs, ib_reg_t, link) {
        if (!ib_reg_covers(reg, base, len))
            continue;
        if (ib_reg_right(cache, reg, base, len)) {
            psc_list_remove(&reg->link);
            psc_list_push(&cache->regs, &reg->link);
            return reg;
        }
        cache->stale++;
        ib_cache_drop(cache, reg);
    }
    return NULL;
}

/* ---- adding ---- */

static bool ib_cache_make_room(ib_cache_t *cache, size_t len)
{
    if (len > cache->bytes_max)
        return false;
    psc_list_for_each(reg, &cache->regs, ib_reg_t, link) {
        if (cache->n < cache->n_max && cache->bytes + len <= cache->bytes_max)
            break;
        if (ib_reg_idle(reg))
            ib_cache_drop(cache, reg);
    }
    return cache->n < cache->n_max && cache->bytes + len <= cache->bytes_max;
}

static ib_reg_t *ib_reg_make(ib_cache_t *cache, const uint8_t *base, size_t len,
                             int access)
{
    ib_reg_t *reg = calloc(1, sizeof(*reg));

    if (!reg)
        return NULL;
    psc_list_init(&reg->link);
    psc_list_init(&reg->users);
    reg->base = (uint8_t *)(uintptr_t)base;
    reg->len = len;
    if (cache->windows && access & IBV_ACCESS_LOCAL_WRITE)
        access |= IBV_ACCESS_MW_BIND;
    reg->mr = ibv_reg_mr(cache->pd, reg->base, len, access);
    if (reg->mr) {
        cache->registered++;
        return reg;
    }
    free(reg);
    return NULL;
}

/* Registers memory and keeps the registration for later calls. The registration
 * of read-only memory is not kept, because the first write to the memory would
 * replace its pages. */
static ib_reg_t *ib_cache_add(ib_cache_t *cache, const uint8_t *base,
                              size_t len)
{
    size_t pages = ib_pages_len(base, len);
    ib_reg_t *reg = NULL;

    if (ib_cache_make_room(cache, pages))
        reg =
            ib_reg_make(cache, ib_page_of(base), pages, IBV_ACCESS_LOCAL_WRITE);
    if (!reg)
        return NULL;
    reg->frames = calloc(pages / IB_PAGE, sizeof(*reg->frames));
    if (!reg->frames ||
        !ib_proof_take(cache->proof, reg->base, reg->len, reg->frames)) {
        ib_reg_free(reg);
        return NULL;
    }
    cache->n++;
    cache->bytes += pages;
    psc_list_push(&cache->regs, &reg->link);
    return reg;
}

/* Finds a registration among `regions`, whose keys any peer may use. No proof
 * is needed that its memory is still mapped, because the user that registered
 * the region deregisters it before unmapping the memory. */
static ib_reg_t *ib_cache_region(ib_cache_t *cache, const uint8_t *base,
                                 size_t len)
{
    psc_list_for_each(reg, &cache->regions, ib_reg_t, link) {
        if (ib_reg_covers(reg, base, len))
            return reg;
    }
    return NULL;
}

ib_reg_t *ib_cache_get(ib_cache_t *cache, const uint8_t *base, size_t len)
{
    ib_reg_t *reg = ib_cache_region(cache, base, len);

    if (!reg && cache->proof >= 0)
        reg = ib_cache_find(cache, base, len);
    if (reg)
        cache->found++;
    else if (cache->proof >= 0)
        reg = ib_cache_add(cache, base, len);
    if (reg)
        reg->used = true;
    else
        cache->not_kept++;
    return reg;
}

/* Memory that the process itself may not write is registered without the right
 * to write. */
ib_reg_t *ib_cache_register(ib_cache_t *cache, uint8_t *base, size_t len,
                            bool region)
{
    ib_reg_t *reg =
        ib_reg_make(cache, base, len,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                        IBV_ACCESS_REMOTE_READ);

    if (!reg && errno == EFAULT)
        reg = ib_reg_make(cache, base, len, IBV_ACCESS_REMOTE_READ);
    if (!reg)
        return NULL;
    reg->given_up = !region;
    psc_list_push(region ? &cache->regions : &cache->given_up, &reg->link);
    return reg;
}

/* ---- sweeping ---- */

void ib_cache_sweep(ib_cache_t *cache)
{
    psc_list_for_each(reg, &cache->regs, ib_reg_t, link) {
        if (!reg->used && ib_reg_idle(reg))
            ib_cache_drop(cache, reg);
        else
            reg->used = false;
    }
}
