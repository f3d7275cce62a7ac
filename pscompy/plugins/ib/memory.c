/* Registration of memory, and put and get by RDMA write and read. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ib.h"

#define IB_RKEY_MAGIC 0x6b726269u /* the bytes "ibrk" */

struct psc_mem {
    ib_user_t user;
    ib_reg_t *reg;
    /* endpoint of the only peer that may access the memory; NULL: any peer
     * may */
    ib_ep_t *ep;
    /* `reg` was registered for this psc_mem_t only, not taken from the cache */
    bool own;
    /* the peer accesses the memory through the window of `reg` (window.c) */
    bool exposed;
};

/* A remote key, in the format in which it is sent. */
struct psc_rkey {
    uint32_t magic, rkey;
    uint64_t address, len;
};

/* ---- put and get ---- */

static bool ib_rkey_covers(const psc_rkey_t *rkey, uint64_t offset, size_t len)
{
    return offset <= rkey->len && len <= rkey->len - offset;
}

static psc_status_t ib_move_post(ib_ep_t *ep, ib_queue_t *queue,
                                 enum ibv_wr_opcode opcode, const void *buffer,
                                 size_t len, const psc_mem_t *mem,
                                 const psc_rkey_t *rkey, uint64_t offset,
                                 psc_comp_t *comp)
{
    ib_post_t post = {
        .opcode = opcode,
        .pieces = {{.addr = (uintptr_t)buffer,
                    .length = (uint32_t)len,
                    .lkey = mem->reg->mr->lkey}},
        .n_pieces = 1,
        .signal = true,
        .address = rkey->address + offset,
        .rkey = rkey->rkey,
        .job = {.comp = comp, .buffer = IB_NO_BUFFER},
    };
    psc_status_t status = ib_ep_post(ep, queue, &post);

    if (status != PSC_OK)
        return status;
    /* n_starving counts this operation until it has completed */
    ib_ep_iface(ep)->n_starving++;
    return PSC_INPROGRESS;
}

static bool ib_move_fits(const ib_ep_t *ep, size_t len, const psc_mem_t *mem,
                         const psc_rkey_t *rkey, uint64_t offset)
{
    return mem && ib_rkey_covers(rkey, offset, len) &&
           len <= ib_ep_iface(ep)->device.port_attr.max_msg_sz;
}

static psc_status_t ib_bulk_move(psc_ep_t *self, enum ibv_wr_opcode opcode,
                                 const void *buffer, size_t len,
                                 const psc_mem_t *mem, const psc_rkey_t *rkey,
                                 uint64_t offset, psc_comp_t *comp)
{
    ib_ep_t *ep = ib_ep(self);

    if (!ib_move_fits(ep, len, mem, rkey, offset))
        return PSC_ERR_INVALID;
    if (len == 0)
        return PSC_OK;
    if (!psc_kit_ep_works(&ep->kit))
        return psc_kit_ep_refuse(&ep->kit);
    if (ib_queue_room(&ep->bulk) <= IB_RESERVE || !ib_bulk_usable(ep))
        return ib_ep_starve(ep);
    return ib_move_post(ep, &ep->bulk, opcode, buffer, len, mem, rkey, offset,
                        comp);
}

psc_status_t ib_put(psc_ep_t *self, const void *buffer, size_t len,
                    psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                    psc_comp_t *comp)
{
    return ib_bulk_move(self, IBV_WR_RDMA_WRITE, buffer, len, mem, rkey, offset,
                        comp);
}

/* The write is posted to the queue of messages, so that the message that
 * follows is delivered after the write. This message is copied inline, or there
 * is a free buffer for it. */
psc_status_t ib_put_am(psc_ep_t *self, uint8_t id, const void *header,
                       uint8_t header_len, const void *buffer, size_t len,
                       psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                       psc_comp_t *comp)
{
    ib_ep_t *ep = ib_ep(self);
    psc_status_t status;

    if (!ib_move_fits(ep, len, mem, rkey, offset))
        return PSC_ERR_INVALID;
    status = ib_am_may(ep, 2);
    if (status != PSC_OK)
        return status;
    if (ib_ep_iface(ep)->sends.n_free == 0)
        return ib_ep_starve(ep);
    status = ib_move_post(ep, &ep->messages, IBV_WR_RDMA_WRITE, buffer, len,
                          mem, rkey, offset, comp);
    if (status != PSC_INPROGRESS)
        return status;
    if (ib_am_short(self, id, header, header_len, NULL, 0) != PSC_OK)
        psc_kit_ep_fail(&ep->kit, PSC_ERR_TRANSPORT,
                        "the message behind a put was refused");
    return PSC_INPROGRESS;
}

psc_status_t ib_get(psc_ep_t *self, void *buffer, size_t len, psc_mem_t *mem,
                    psc_rkey_t *rkey, uint64_t offset, psc_comp_t *comp)
{
    return ib_bulk_move(self, IBV_WR_RDMA_READ, buffer, len, mem, rkey, offset,
                        comp);
}

/* ---- registration ---- */

static void ib_mem_use(psc_mem_t *mem, ib_reg_t *reg)
{
    mem->reg = reg;
    psc_list_push_front(&reg->users, &mem->user.link);
}

static void ib_mem_leave(psc_mem_t *mem)
{
    psc_list_remove(&mem->user.link);
    ib_cache_settle(mem->reg);
}

/* Returns a registration of the memory. If the memory is for one peer and one
 * message, this may be a kept registration of the cache; memory that any peer
 * may access is registered separately. */
static ib_reg_t *ib_mem_reg(ib_cache_t *cache, psc_mem_t *mem, void *base)
{
    ib_reg_t *reg = mem->ep ? ib_cache_get(cache, base, mem->user.len) : NULL;

    if (reg)
        return reg;
    mem->own = true;
    return ib_cache_register(cache, base, mem->user.len, mem->ep == NULL);
}

static psc_status_t ib_mem_refused(ib_iface_t *iface, const psc_mem_t *mem)
{
    int error = errno;

    if (mem->ep && !iface->settings.fallbacks)
        psc_kit_ep_fail(&mem->ep->kit, PSC_ERR_TRANSPORT,
                        "%" PRIu64 " bytes cannot be registered: %s "
                        "(PSP_IB_RNDV_FALLBACKS=0)",
                        mem->user.len, strerror(error));
    return error == EFAULT ? PSC_ERR_INVALID : PSC_ERR_NO_RESOURCE;
}

psc_status_t ib_mem_register(psc_iface_t *self, psc_ep_t *ep, void *base,
                             size_t len, psc_mem_t **mem_p)
{
    psc_mem_t *mem = calloc(1, sizeof(*mem));
    ib_reg_t *reg;
    psc_status_t status;

    if (!mem)
        return PSC_ERR_NO_MEMORY;
    mem->ep = ep ? ib_ep(ep) : NULL;
    mem->user.address = (uintptr_t)base;
    mem->user.len = len;
    reg = ib_mem_reg(&ib_iface(self)->cache, mem, base);
    if (!reg) {
        status = ib_mem_refused(ib_iface(self), mem);
        free(mem);
        return status;
    }
    ib_mem_use(mem, reg);
    *mem_p = mem;
    return PSC_OK;
}

void ib_mem_deregister(psc_iface_t *self, psc_mem_t *mem)
{
    if (mem->exposed)
        ib_window_close(mem->reg, &mem->ep->messages);
    ib_mem_leave(mem);
    if (!mem->ep)
        ib_cache_give_up(&ib_iface(self)->cache, mem->reg);
    free(mem);
}

/* Returns true if no other psc_mem_t uses the registration. The registration of
 * a region that any peer may access also serves messages that are sent from
 * this memory, and the key of the registration stays valid until these messages
 * have completed. */
static bool ib_mem_alone(const psc_mem_t *mem)
{
    return mem->user.link.next == mem->user.link.prev &&
           mem->reg->bindings == 0;
}

psc_status_t ib_mem_revoke(psc_iface_t *self, psc_mem_t *mem)
{
    (void)self;
    if (mem->exposed)
        ib_window_revoke(mem->reg);
    mem->exposed = false;
    if (mem->ep ? !mem->own && mem->reg->invalid : !ib_mem_alone(mem))
        return PSC_INPROGRESS;
    return PSC_OK;
}

/* ---- keys ---- */

/* Opens the memory to the peer through the registration's window. If the window
 * cannot be used, registers the memory separately for the peer. */
static bool ib_mem_expose(ib_iface_t *iface, psc_mem_t *mem)
{
    ib_reg_t *reg;

    if (mem->exposed || mem->own)
        return true;
    mem->exposed = ib_window_open(&iface->cache, mem->reg, &mem->ep->messages,
                                  mem->user.address, mem->user.len);
    if (mem->exposed)
        return true;
    reg = ib_cache_register(&iface->cache, (void *)(uintptr_t)mem->user.address,
                            mem->user.len, false);
    if (!reg)
        return false;
    ib_mem_leave(mem);
    ib_mem_use(mem, reg);
    mem->own = true;
    return true;
}

psc_status_t ib_rkey_pack(psc_iface_t *self, psc_mem_t *mem, uint8_t *packed,
                          size_t *len_p)
{
    psc_rkey_t key = {
        .magic = IB_RKEY_MAGIC,
        .address = mem->user.address,
        .len = mem->user.len,
    };

    if (*len_p < sizeof(key))
        return PSC_ERR_INVALID;
    if (!ib_mem_expose(ib_iface(self), mem))
        return PSC_ERR_NO_RESOURCE;
    key.rkey = mem->exposed ? mem->reg->window->rkey : mem->reg->mr->rkey;
    memcpy(packed, &key, sizeof(key));
    *len_p = sizeof(key);
    return PSC_OK;
}

psc_status_t ib_rkey_unpack(psc_ep_t *ep, const uint8_t *packed, size_t len,
                            psc_rkey_t **rkey_p)
{
    psc_rkey_t *rkey;

    (void)ep;
    if (len != sizeof(*rkey))
        return PSC_ERR_PROTOCOL;
    rkey = malloc(sizeof(*rkey));
    if (!rkey)
        return PSC_ERR_NO_MEMORY;
    memcpy(rkey, packed, sizeof(*rkey));
    if (rkey->magic != IB_RKEY_MAGIC ||
        rkey->len > UINT64_MAX - rkey->address) {
        free(rkey);
        return PSC_ERR_PROTOCOL;
    }
    *rkey_p = rkey;
    return PSC_OK;
}

uint32_t ib_iface_counters(const psc_iface_t *iface, psc_counted_t *counters,
                           uint32_t room)
{
    const ib_cache_t *cache = &((const ib_iface_t *)iface)->cache;

    if (room < 4)
        return 0;
    counters[0] = (psc_counted_t){"ib_kept", cache->n};
    counters[1] = (psc_counted_t){"ib_kept_bytes", cache->bytes};
    counters[2] = (psc_counted_t){"ib_registered", cache->registered};
    counters[3] = (psc_counted_t){"ib_found", cache->found};
    return 4;
}
