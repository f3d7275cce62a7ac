#include "rma.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "../core/memory/memory.h"

#define REGION_MAGIC 0x33524d50u /* the bytes "PMR3" */

/* ---- beginning and end ---- */

static bool region_capable(const psc_iface_slot_t *slot)
{
    return slot->attr.caps & (PSC_CAP_PUT | PSC_CAP_GET);
}

psc_status_t psc_region_create(psc_worker_t *worker, void *base, size_t len,
                               psc_region_t **region_p)
{
    psc_region_t *region = calloc(1, sizeof *region);

    if (!region)
        return PSC_ERR_NO_MEMORY;
    region->worker = worker;
    region->id = ++worker->memory.last_region;
    region->base = base;
    region->len = len;
    psc_target_init(&region->target);
    if (getrandom(&region->nonce, sizeof region->nonce, 0) !=
        sizeof region->nonce) {
        free(region);
        return PSC_ERR_NO_RESOURCE;
    }
    psc_iface_for_each(slot, &worker->interfaces) {
        if (region_capable(slot) && len > 0 &&
            slot->ops->mem_register(slot->iface, NULL, base, len,
                                    &region->mem[slot->index]) != PSC_OK)
            /* The memory could not be registered, so the packed region has no
             * key for this transport. A peer that can use no other key puts and
             * gets by messages (rma.c). */
            region->mem[slot->index] = NULL;
    }
    psc_list_push(&worker->memory.regions, &region->link);
    *region_p = region;
    return PSC_OK;
}

/* Revoke the region's keys. Returns PSC_INPROGRESS while a peer is writing by
 * one of the keys. */
static psc_status_t region_revoke(psc_region_t *region)
{
    psc_status_t status = PSC_OK;

    psc_iface_for_each(slot, &region->worker->interfaces) {
        psc_mem_t *mem = region->mem[slot->index];

        if (mem && slot->ops->mem_revoke &&
            slot->ops->mem_revoke(slot->iface, mem) == PSC_INPROGRESS)
            status = PSC_INPROGRESS;
    }
    return status;
}

static void region_free(psc_region_t *region)
{
    psc_iface_for_each(slot, &region->worker->interfaces) {
        if (region->mem[slot->index])
            slot->ops->mem_deregister(slot->iface, region->mem[slot->index]);
    }
    psc_list_for_each(bulk, &region->target.accesses, psc_bulk_t, access_link)
        psc_target_leave(
            bulk->req); /* no access to the region is in flight any more */
    psc_list_remove(&region->link);
    free(region);
}

psc_status_t psc_region_close(psc_region_t *region)
{
    psc_status_t keys = region_revoke(region);
    psc_status_t messages = psc_target_close(&region->target);

    if (keys == PSC_INPROGRESS || messages == PSC_INPROGRESS)
        return PSC_INPROGRESS;
    region_free(region);
    return PSC_OK;
}

unsigned psc_regions_revoke(psc_worker_t *worker)
{
    unsigned n = 0;

    psc_list_for_each(region, &worker->memory.regions, psc_region_t, link)
        n += region_revoke(region) == PSC_INPROGRESS;
    return n;
}

void psc_regions_destroy(psc_worker_t *worker)
{
    psc_list_for_each(region, &worker->memory.regions, psc_region_t, link)
        region_free(region);
}

/* ---- packed keys ---- */

static psc_status_t region_pack_key(psc_region_t *region,
                                    const psc_iface_slot_t *slot,
                                    uint8_t *packed, size_t *len_p)
{
    psc_region_packed_key_t head = {.rail = (uint16_t)slot->attr.rail};
    size_t len = PSC_RKEY_MAX;
    psc_status_t status = slot->ops->rkey_pack(
        slot->iface, region->mem[slot->index], packed + sizeof head, &len);

    if (status != PSC_OK)
        return status;
    memcpy(head.transport, slot->ops->name,
           strnlen(slot->ops->name, sizeof head.transport));
    head.len = (uint8_t)len;
    memcpy(packed, &head, sizeof head);
    *len_p = sizeof head + len;
    return PSC_OK;
}

static void region_check(const psc_worker_t *worker, const uint8_t *packed,
                         size_t len, uint8_t *check)
{
    psc_siphash(worker->memory.secret, packed + PSC_SIPHASH_SIZE,
                len - PSC_SIPHASH_SIZE, check);
}

psc_status_t psc_region_pack(psc_region_t *region, uint8_t *packed,
                             size_t *len_p)
{
    psc_region_packed_t head = {.magic = REGION_MAGIC,
                                .id = region->id,
                                .nonce = region->nonce,
                                .len = region->len};
    size_t at = sizeof head, len;

    if (*len_p < at)
        return PSC_ERR_INVALID;
    psc_iface_for_each(slot, &region->worker->interfaces) {
        if (!region->mem[slot->index])
            continue;
        if (*len_p < at + sizeof(psc_region_packed_key_t) + PSC_RKEY_MAX)
            return PSC_ERR_INVALID;
        if (region_pack_key(region, slot, packed + at, &len) != PSC_OK)
            continue;
        at += len;
        head.n_keys++;
    }
    memcpy(packed, &head, sizeof head);
    region_check(region->worker, packed, at, packed);
    *len_p = at;
    return PSC_OK;
}

psc_status_t psc_region_parse(const psc_worker_t *worker, const uint8_t *packed,
                              size_t packed_len, uint64_t offset, uint64_t len,
                              psc_region_packed_t *head)
{
    uint8_t check[PSC_SIPHASH_SIZE];

    if (packed_len < sizeof *head)
        return PSC_ERR_KEY;
    memcpy(head, packed, sizeof *head);
    region_check(worker, packed, packed_len, check);
    if (head->magic != REGION_MAGIC || !psc_siphash_equal(check, head->check))
        return PSC_ERR_KEY;
    if (offset > head->len || len > head->len - offset)
        return PSC_ERR_BOUNDS;
    return PSC_OK;
}

uint64_t psc_region_size(const uint8_t *packed, size_t len)
{
    psc_region_packed_t head;

    if (len < sizeof head)
        return 0;
    memcpy(&head, packed, sizeof head);
    return head.len;
}

/* ---- lookup for a peer ---- */

psc_region_t *psc_region_find(psc_worker_t *worker, const psc_wire_rma_t *wire)
{
    psc_list_for_each(region, &worker->memory.regions, psc_region_t, link) {
        if (region->id == wire->region && region->nonce == wire->nonce &&
            !region->target.closed && wire->offset <= region->len &&
            wire->len <= region->len - wire->offset)
            return region;
    }
    return NULL;
}
