/* Registration, put and get. A registration is a region of the driver
 * (psptl_region_t), and its remote key contains the match bits of the
 * region. */
#include <stdlib.h>
#include <string.h>

#include "portals.h"

#define PORTALS_RKEY_MAGIC 0x6b727470u /* the bytes "ptrk", little-endian */

/* A remote key: the data that a peer needs to put to or get from a region. This
 * is also the format in which it is sent. */
struct psc_rkey {
    uint32_t magic, reserved;
    uint64_t bits, len;
};

/* ---- put and get ---- */

psc_status_t portals_status_of(psptl_verdict_t verdict)
{
    static const psc_status_t statuses[] = {
        [PSPTL_OK] = PSC_OK,
        [PSPTL_REFUSED] = PSC_ERR_INVALID,
        [PSPTL_UNCLAIMED] = PSC_ERR_UNSUPPORTED,
        [PSPTL_LOST] = PSC_ERR_PEER_LOST,
        [PSPTL_BROKEN] = PSC_ERR_TRANSPORT,
    };

    return statuses[verdict];
}

/* An endpoint's failure is reported, with its reason, before the puts and gets
 * that it has ended. */
void portals_bulk_done(void *owner, void *cookie, psptl_verdict_t verdict)
{
    portals_ep_t *ep = owner;
    psc_comp_t *comp = cookie;

    if (psc_kit_ep_fails(&ep->kit))
        portals_ep_iface(ep)->handled += psc_kit_eps_report(ep->kit.all);
    comp->func(comp, portals_status_of(verdict));
}

static psc_status_t portals_move(psc_ep_t *self, psptl_order_t *order,
                                 const psc_rkey_t *rkey, uint64_t offset)
{
    portals_ep_t *ep = portals_ep(self);

    if (offset > rkey->len || order->len > rkey->len - offset)
        return PSC_ERR_INVALID;
    if (!psc_kit_ep_works(&ep->kit))
        return psc_kit_ep_refuse(&ep->kit);
    if (order->len == 0)
        return PSC_OK;
    order->bits = rkey->bits;
    order->offset = offset;
    return psptl_bulk_start(ep->channel, order) ? PSC_INPROGRESS
                                                : PSC_ERR_NO_MEMORY;
}

psc_status_t portals_put(psc_ep_t *ep, const void *buffer, size_t len,
                         psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                         psc_comp_t *comp)
{
    psptl_order_t order = {
        .cookie = comp,
        .local = (uint8_t *)(uintptr_t)buffer,
        .len = len,
    };

    (void)mem;
    return portals_move(ep, &order, rkey, offset);
}

psc_status_t portals_get(psc_ep_t *ep, void *buffer, size_t len, psc_mem_t *mem,
                         psc_rkey_t *rkey, uint64_t offset, psc_comp_t *comp)
{
    psptl_order_t order = {
        .cookie = comp,
        .local = buffer,
        .len = len,
        .get = true,
    };

    (void)mem;
    return portals_move(ep, &order, rkey, offset);
}

/* ---- registration ---- */

psc_status_t portals_mem_register(psc_iface_t *self, psc_ep_t *ep, void *base,
                                  size_t len, psc_mem_t **mem_p)
{
    portals_iface_t *iface = portals_iface(self);
    psptl_channel_t *channel = ep ? portals_ep(ep)->channel : NULL;
    psptl_region_t *region =
        psptl_region_open(iface->device, channel, base, len);

    if (!region)
        return PSC_ERR_NO_RESOURCE;
    *mem_p = (psc_mem_t *)region;
    return PSC_OK;
}

psc_status_t portals_mem_revoke(psc_iface_t *self, psc_mem_t *mem)
{
    portals_iface_t *iface = portals_iface(self);

    if (psptl_region_revoke(iface->device, (psptl_region_t *)mem))
        return PSC_OK;
    /* a thread may sleep on the interface's descriptor: the alarm wakes it, so
     * that it tries the revocation again */
    if (iface->armed)
        portals_sleep_until(iface);
    return PSC_INPROGRESS;
}

void portals_mem_deregister(psc_iface_t *self, psc_mem_t *mem)
{
    portals_iface_t *iface = portals_iface(self);
    psptl_region_t region = *(psptl_region_t *)mem;

    if (!psptl_region_close(iface->device, (psptl_region_t *)mem))
        psc_iface_log(self, 1,
                      "a peer that has stopped amid a put or get may still "
                      "use %zu bytes at %p that were given back (match bits "
                      "%llx): end its process before they are used again",
                      region.len, region.base, (unsigned long long)region.bits);
}

/* ---- keys ---- */

psc_status_t portals_rkey_pack(psc_iface_t *self, psc_mem_t *mem,
                               uint8_t *packed, size_t *len_p)
{
    const psptl_region_t *region = (const psptl_region_t *)mem;
    psc_rkey_t key = {
        .magic = PORTALS_RKEY_MAGIC,
        .bits = region->bits,
        .len = region->len,
    };

    (void)self;
    if (*len_p < sizeof(key))
        return PSC_ERR_INVALID;
    memcpy(packed, &key, sizeof(key));
    *len_p = sizeof(key);
    return PSC_OK;
}

psc_status_t portals_rkey_unpack(psc_ep_t *ep, const uint8_t *packed,
                                 size_t len, psc_rkey_t **rkey_p)
{
    psc_rkey_t *rkey;

    (void)ep;
    if (len != sizeof(*rkey))
        return PSC_ERR_PROTOCOL;
    rkey = malloc(sizeof(*rkey));
    if (!rkey)
        return PSC_ERR_NO_MEMORY;
    memcpy(rkey, packed, sizeof(*rkey));
    if (rkey->magic != PORTALS_RKEY_MAGIC) {
        free(rkey);
        return PSC_ERR_PROTOCOL;
    }
    *rkey_p = rkey;
    return PSC_OK;
}
