/* Registration, put and get. A key names a region in the interface's table of
 * regions. The region is looked up at each use of the key, so a key of a
 * deregistered region is refused. */
#include <stdlib.h>

#include "loop.h"

/* Length of a packed key: the interface's nonce, the region's id, and the
 * region's length, 8 bytes each. */
#define LOOP_RKEY_SIZE 24u

struct psc_rkey {
    uint64_t id;
};

static psc_mem_t *loop_mem_find(const loop_iface_t *iface, uint64_t id)
{
    uint32_t at = (uint32_t)id;

    if (at >= iface->n_entries || !iface->entries[at].mem ||
        iface->entries[at].mem->id != id)
        return NULL;
    return iface->entries[at].mem;
}

/* ---- registration ---- */

static psc_status_t loop_entries_grow(loop_iface_t *iface)
{
    uint32_t n = iface->n_entries ? 2 * iface->n_entries : 16;
    loop_entry_t *entries = realloc(iface->entries, n * sizeof(*entries));

    if (!entries)
        return PSC_ERR_NO_MEMORY;
    memset(entries + iface->n_entries, 0,
           (n - iface->n_entries) * sizeof(*entries));
    for (uint32_t i = iface->n_entries; i < n; i++)
        entries[i].next_free = i + 1;
    iface->entries = entries;
    iface->n_entries = n;
    return PSC_OK;
}

psc_status_t loop_mem_register(psc_iface_t *self, psc_ep_t *ep, void *base,
                               size_t len, psc_mem_t **mem_p)
{
    loop_iface_t *iface = (loop_iface_t *)self;
    psc_mem_t *mem;
    uint32_t at = iface->free_place;

    (void)ep;
    if (at == iface->n_entries && loop_entries_grow(iface) != PSC_OK)
        return PSC_ERR_NO_MEMORY;
    mem = malloc(sizeof(*mem));
    if (!mem)
        return PSC_ERR_NO_MEMORY;
    *mem = (psc_mem_t){
        .id = (uint64_t)++iface->entries[at].uses << 32 | at,
        .base = base,
        .len = len,
    };
    iface->entries[at].mem = mem;
    iface->free_place = iface->entries[at].next_free;
    *mem_p = mem;
    return PSC_OK;
}

void loop_mem_deregister(psc_iface_t *self, psc_mem_t *mem)
{
    loop_iface_t *iface = (loop_iface_t *)self;
    uint32_t at = (uint32_t)mem->id;

    iface->entries[at].mem = NULL;
    iface->entries[at].next_free = iface->free_place;
    iface->free_place = at;
    free(mem);
}

void loop_mem_end(loop_iface_t *iface)
{
    for (uint32_t i = 0; i < iface->n_entries; i++)
        free(iface->entries[i].mem);
    free(iface->entries);
}

/* ---- keys ---- */

psc_status_t loop_rkey_pack(psc_iface_t *self, psc_mem_t *mem, uint8_t *packed,
                            size_t *len_p)
{
    const loop_iface_t *iface = (const loop_iface_t *)self;
    const uint64_t len = mem->len;

    if (*len_p < LOOP_RKEY_SIZE)
        return PSC_ERR_INVALID;
    memcpy(packed, &iface->nonce, 8);
    memcpy(packed + 8, &mem->id, 8);
    memcpy(packed + 16, &len, 8);
    *len_p = LOOP_RKEY_SIZE;
    return PSC_OK;
}

psc_status_t loop_rkey_unpack(psc_ep_t *ep, const uint8_t *packed, size_t len,
                              psc_rkey_t **rkey_p)
{
    const loop_iface_t *iface = (const loop_iface_t *)ep->iface;
    const psc_mem_t *mem;
    uint64_t id, size;

    if (len != LOOP_RKEY_SIZE || memcmp(packed, &iface->nonce, 8) != 0)
        return PSC_ERR_PROTOCOL;
    memcpy(&id, packed + 8, 8);
    memcpy(&size, packed + 16, 8);
    mem = loop_mem_find(iface, id);
    if (!mem || mem->len != size)
        return PSC_ERR_PROTOCOL;
    *rkey_p = malloc(sizeof(**rkey_p));
    if (!*rkey_p)
        return PSC_ERR_NO_MEMORY;
    (*rkey_p)->id = id;
    return PSC_OK;
}

/* ---- put and get ---- */

/* Sets *at_p to the address of the bytes at `offset` of the region that the key
 * names. Returns an error if the region does not contain them. */
static psc_status_t loop_region(const psc_ep_t *self, const psc_rkey_t *rkey,
                                uint64_t offset, size_t len, uint8_t **at_p)
{
    const loop_ep_t *ep = (const loop_ep_t *)self;
    const psc_mem_t *mem;

    if (!ep->peer)
        return ep->closed ? PSC_ERR_CLOSED : PSC_ERR_PEER_LOST;
    mem = loop_mem_find((const loop_iface_t *)self->iface, rkey->id);
    if (!mem || len > LOOP_RMA_MAX || offset > mem->len ||
        len > mem->len - offset)
        return PSC_ERR_INVALID;
    *at_p = mem->base + offset;
    return PSC_OK;
}

/* Uses memmove, because source and destination may overlap in one process. */
psc_status_t loop_put(psc_ep_t *ep, const void *buffer, size_t len,
                      psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                      psc_comp_t *comp)
{
    uint8_t *at;
    psc_status_t status = loop_region(ep, rkey, offset, len, &at);

    (void)mem;
    (void)comp;
    if (status == PSC_OK && len > 0)
        memmove(at, buffer, len);
    return status;
}

/* Queues the message before copying the bytes of the put, because queuing may
 * fail. Progress delivers the message later. */
psc_status_t loop_put_am(psc_ep_t *ep, uint8_t id, const void *header,
                         uint8_t header_len, const void *buffer, size_t len,
                         psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                         psc_comp_t *comp)
{
    uint8_t *at;
    psc_status_t status = loop_region(ep, rkey, offset, len, &at);

    if (status == PSC_OK)
        status = loop_am_bcopy(ep, id, header, header_len, NULL, 0);
    return status == PSC_OK ? loop_put(ep, buffer, len, mem, rkey, offset, comp)
                            : status;
}

psc_status_t loop_get(psc_ep_t *ep, void *buffer, size_t len, psc_mem_t *mem,
                      psc_rkey_t *rkey, uint64_t offset, psc_comp_t *comp)
{
    uint8_t *at;
    psc_status_t status = loop_region(ep, rkey, offset, len, &at);

    (void)mem;
    (void)comp;
    if (status == PSC_OK && len > 0)
        memmove(buffer, at, len);
    return status;
}
