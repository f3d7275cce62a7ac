/* The wrapper of a transport: passes every call of the core down, and counts
 * the operations that send or move data.
 *
 * The wrapper does only what the contract allows any transport: it returns
 * NO_RESOURCE, makes progress late, fails an endpoint or refuses a
 * registration. It loses and reorders nothing. After a NO_RESOURCE the core
 * waits until the transport has room again, so `arm` returns NO_RESOURCE, which
 * keeps the core from sleeping, until the next progress. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pscompy/transport/kit/settings.h"
#include "wrapper.h"

/* The setting that holds the address of the wrapper, for `open`. No variable of
 * the user sets it. */
#define FAULTS_SETTING "faults"

/* ---- faults ---- */

/* Called before every operation. Returns PSC_OK if the operation is to be
 * passed to the inner transport, otherwise the status of the fault. */
static psc_status_t faults_before(faults_t *faults, faults_ep_t *ep)
{
    if (ep->broken)
        return PSC_ERR_TRANSPORT;
    if (faults->busy_left > 0) {
        faults->busy_left--;
        faults->owed = true;
        return PSC_ERR_NO_RESOURCE;
    }
    faults->operations++;
    if (faults->operations == faults->knobs.kill_at)
        kill(getpid(), SIGKILL);
    if (faults->operations == faults->knobs.fail_at &&
        (faults->knobs.path == 0 || faults->knobs.path == faults->path + 1)) {
        ep->broken = true;
        psc_list_push(&faults->breaking, &ep->link);
        return PSC_ERR_TRANSPORT;
    }
    return PSC_OK;
}

/* Called after every operation: an operation that succeeded is followed by
 * `busy` refusals (NO_RESOURCE). */
static psc_status_t faults_after(faults_t *faults, psc_status_t status)
{
    if (status >= 0)
        faults->busy_left = faults->knobs.busy;
    return status;
}

/* Calls the inner transport's operation `name` on the inner endpoint of `ep`,
 * or on the inner interface of `iface`. */
#define EP_CALL(ep, name, ...)                                                 \
    faults_of((ep)->iface)->inner_ops->name(ep_of(ep)->inner, ##__VA_ARGS__)
#define IFACE_CALL(iface, name, ...)                                           \
    faults_of(iface)->inner_ops->name(faults_of(iface)->inner, ##__VA_ARGS__)

#define FAULTS_OPERATION(ep, name, ...)                                        \
    faults_t *faults = faults_of((ep)->iface);                                 \
    psc_status_t status = faults_before(faults, ep_of(ep));                    \
                                                                               \
    return status == PSC_OK                                                    \
               ? faults_after(faults, EP_CALL(ep, name, __VA_ARGS__))          \
               : status

static psc_status_t faults_am_short(psc_ep_t *ep, uint8_t id,
                                    const void *header, uint8_t header_len,
                                    const void *payload, size_t len)
{
    FAULTS_OPERATION(ep, am_short, id, header, header_len, payload, len);
}

static psc_status_t faults_am_bcopy(psc_ep_t *ep, uint8_t id,
                                    const void *header, uint8_t header_len,
                                    const psc_iov_t *iov, size_t n_iov)
{
    FAULTS_OPERATION(ep, am_bcopy, id, header, header_len, iov, n_iov);
}

static psc_status_t faults_am_zcopy(psc_ep_t *ep, uint8_t id,
                                    const void *header, uint8_t header_len,
                                    const psc_iov_t *iov, size_t n_iov,
                                    psc_comp_t *comp)
{
    FAULTS_OPERATION(ep, am_zcopy, id, header, header_len, iov, n_iov, comp);
}

static psc_status_t faults_put(psc_ep_t *ep, const void *buffer, size_t len,
                               psc_mem_t *mem, psc_rkey_t *rkey,
                               uint64_t offset, psc_comp_t *comp)
{
    FAULTS_OPERATION(ep, put, buffer, len, mem, rkey, offset, comp);
}

static psc_status_t faults_put_am(psc_ep_t *ep, uint8_t id, const void *header,
                                  uint8_t header_len, const void *buffer,
                                  size_t len, psc_mem_t *mem, psc_rkey_t *rkey,
                                  uint64_t offset, psc_comp_t *comp)
{
    FAULTS_OPERATION(ep, put_am, id, header, header_len, buffer, len, mem, rkey,
                     offset, comp);
}

static psc_status_t faults_get(psc_ep_t *ep, void *buffer, size_t len,
                               psc_mem_t *mem, psc_rkey_t *rkey,
                               uint64_t offset, psc_comp_t *comp)
{
    FAULTS_OPERATION(ep, get, buffer, len, mem, rkey, offset, comp);
}

static psc_status_t faults_ep_flush(psc_ep_t *ep, psc_comp_t *comp)
{
    FAULTS_OPERATION(ep, ep_flush, comp);
}

/* ---- memory ---- */

static bool faults_refuses(faults_t *faults)
{
    return faults->knobs.refuse > 0 && faults->knobs.refuse-- > 0;
}

static psc_status_t faults_mem_register(psc_iface_t *iface, psc_ep_t *ep,
                                        void *base, size_t len,
                                        psc_mem_t **mem_p)
{
    faults_t *faults = faults_of(iface);

    if (faults_refuses(faults))
        return PSC_ERR_NO_RESOURCE;
    return faults->inner_ops->mem_register(
        faults->inner, ep ? ep_of(ep)->inner : NULL, base, len, mem_p);
}

static void faults_mem_deregister(psc_iface_t *iface, psc_mem_t *mem)
{
    IFACE_CALL(iface, mem_deregister, mem);
}

static psc_status_t faults_mem_revoke(psc_iface_t *iface, psc_mem_t *mem)
{
    return faults_of(iface)->inner_ops->mem_revoke
               ? IFACE_CALL(iface, mem_revoke, mem)
               : PSC_OK;
}

static psc_status_t faults_rkey_pack(psc_iface_t *iface, psc_mem_t *mem,
                                     uint8_t *packed, size_t *len_p)
{
    return IFACE_CALL(iface, rkey_pack, mem, packed, len_p);
}

static psc_status_t faults_rkey_unpack(psc_ep_t *ep, const uint8_t *packed,
                                       size_t len, psc_rkey_t **rkey_p)
{
    return EP_CALL(ep, rkey_unpack, packed, len, rkey_p);
}

static void faults_rkey_release(psc_ep_t *ep, psc_rkey_t *rkey)
{
    EP_CALL(ep, rkey_release, rkey);
}

static psc_status_t faults_mem_share(psc_iface_t *iface, void *base, size_t len,
                                     int fd, psc_mem_t **mem_p)
{
    faults_t *faults = faults_of(iface);

    if (faults_refuses(faults))
        return PSC_ERR_NO_RESOURCE;
    return faults->inner_ops->mem_share(faults->inner, base, len, fd, mem_p);
}

static psc_status_t faults_rkey_map(psc_ep_t *ep, const uint8_t *packed,
                                    size_t len, psc_map_t **map_p)
{
    return EP_CALL(ep, rkey_map, packed, len, map_p);
}

static psc_status_t faults_expose(psc_ep_t *ep, psc_exposed_t *recv,
                                  uint64_t seen)
{
    return EP_CALL(ep, expose, recv, seen);
}

static psc_status_t faults_conceal(psc_ep_t *ep, psc_exposed_t *recv,
                                   uint64_t seen)
{
    return EP_CALL(ep, conceal, recv, seen);
}

static uint32_t faults_exposed(psc_ep_t *ep, psc_advertised_t *advertised,
                               uint64_t *seen_p)
{
    return EP_CALL(ep, exposed, advertised, seen_p);
}

static psc_status_t faults_claim(psc_ep_t *ep,
                                 const psc_advertised_t *advertised,
                                 uint64_t bits, const void *buffer, size_t len,
                                 psc_comp_t *comp)
{
    FAULTS_OPERATION(ep, claim, advertised, bits, buffer, len, comp);
}

static void faults_desc_release(psc_iface_t *iface, psc_desc_t *desc)
{
    IFACE_CALL(iface, desc_release, desc);
}

/* ---- endpoints ---- */

static psc_status_t faults_ep_create(psc_iface_t *iface, void *user,
                                     psc_ep_t **ep_p)
{
    faults_t *faults = faults_of(iface);
    faults_ep_t *ep = calloc(1, sizeof *ep);
    psc_status_t status;

    if (!ep)
        return PSC_ERR_NO_MEMORY;
    ep->super = (psc_ep_t){.iface = iface, .user = user};
    psc_list_init(&ep->link);
    status = faults->inner_ops->ep_create(faults->inner, ep, &ep->inner);
    if (status != PSC_OK)
        free(ep);
    else
        *ep_p = &ep->super;
    return status;
}

static psc_status_t faults_ep_address(psc_ep_t *ep, uint8_t *address,
                                      size_t *len_p)
{
    return EP_CALL(ep, ep_address, address, len_p);
}

static psc_status_t faults_ep_connect(psc_ep_t *ep,
                                      const psc_connect_params_t *params)
{
    return EP_CALL(ep, ep_connect, params);
}

static void faults_ep_spare(psc_ep_t *ep, uint32_t spare)
{
    if (faults_of(ep->iface)->inner_ops->ep_spare)
        EP_CALL(ep, ep_spare, spare);
}

static void faults_ep_close(psc_ep_t *self)
{
    faults_ep_t *ep = ep_of(self);

    psc_list_remove(&ep->link);
    if (!ep->closed)
        EP_CALL(self, ep_close);
    ep->closed = true;
}

static psc_status_t faults_ep_stop(psc_ep_t *ep)
{
    return EP_CALL(ep, ep_stop);
}

static void faults_ep_fini(psc_ep_t *self)
{
    faults_ep_t *ep = ep_of(self);

    psc_list_remove(&ep->link);
    EP_CALL(self, ep_fini);
    free(ep);
}

/* ---- the interface ---- */

/* Returns the wrapper of a path: each path has its own, with the same knobs. */
static faults_t *faults_of_path(faults_t *first, uint32_t path)
{
    faults_t *faults;

    if (path == 0)
        return first;
    faults = faults_create((uintptr_t)first->inner_ops, &first->knobs);
    if (!faults)
        return NULL;
    faults->path = path;
    faults->dice += path;
    faults->next = first->next;
    first->next = faults;
    return faults;
}

static psc_status_t faults_open(const psc_open_params_t *params,
                                psc_iface_t **iface_p)
{
    int64_t wrapper = psc_setting_number(params, FAULTS_SETTING);
    faults_t *faults = (faults_t *)(uintptr_t)wrapper;
    psc_open_params_t inner = *params;
    psc_status_t status;

    if (!faults) {
        snprintf(params->reason, PSC_REASON_MAX, "opened without its wrapper");
        return PSC_ERR_INVALID;
    }
    faults = faults_of_path(faults, params->path);
    if (!faults)
        return PSC_ERR_NO_MEMORY;
    inner.up = &faults_upcalls;
    inner.user = faults;
    /* set before `open`, because the inner transport may log while it opens */
    faults->super.up = params->up;
    faults->super.user = params->user;
    status = faults->inner_ops->open(&inner, &faults->inner);
    if (status != PSC_OK)
        return status;
    *iface_p = &faults->super;
    return PSC_OK;
}

static void faults_query(psc_iface_t *iface, psc_iface_attr_t *attr_p)
{
    faults_t *faults = faults_of(iface);

    faults->inner_ops->query(faults->inner, attr_p);
    attr_p->caps &= ~PSC_CAP_TAG;
}

static unsigned faults_break(faults_t *faults)
{
    psc_link_t *link;
    unsigned n = 0;

    while ((link = psc_list_pop(&faults->breaking))) {
        faults_ep_t *ep = psc_container_of(link, faults_ep_t, link);

        n++;
        faults->super.up->ep_failed(&ep->super, PSC_ERR_TRANSPORT,
                                    "a fault was injected");
    }
    return n;
}

static void faults_rest(faults_t *faults)
{
    faults->dice = faults->dice * 1664525u + 1013904223u;
    faults->delay =
        faults->knobs.delay + (faults->dice >> 8) % (faults->knobs.shuffle + 1);
    faults->delay_left = faults->delay;
}

static unsigned faults_progress(psc_iface_t *iface)
{
    faults_t *faults = faults_of(iface);
    unsigned n = faults_break(faults) + faults->owed;

    faults->owed = false;
    if (faults->delay_left > 0) {
        faults->delay_left--;
        return n;
    }
    faults_rest(faults);
    return n + faults->inner_ops->progress(faults->inner);
}

static int faults_event_fd(psc_iface_t *iface)
{
    return IFACE_CALL(iface, event_fd);
}

static psc_status_t faults_arm(psc_iface_t *iface)
{
    faults_t *faults = faults_of(iface);

    if (faults->owed || !psc_list_empty(&faults->breaking) ||
        faults->delay_left != faults->delay)
        return PSC_ERR_NO_RESOURCE;
    return faults->inner_ops->arm(faults->inner);
}

static void faults_close(psc_iface_t *iface)
{
    IFACE_CALL(iface, close);
}

static psc_status_t faults_stop(psc_iface_t *iface)
{
    return IFACE_CALL(iface, stop);
}

static void faults_fini(psc_iface_t *iface)
{
    IFACE_CALL(iface, fini);
}

static const psc_transport_ops_t faults_template = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_transport_ops_t),
    .open = faults_open,
    .query = faults_query,
    .progress = faults_progress,
    .close = faults_close,
    .stop = faults_stop,
    .fini = faults_fini,
    .ep_create = faults_ep_create,
    .ep_address = faults_ep_address,
    .ep_connect = faults_ep_connect,
    .ep_spare = faults_ep_spare,
    .ep_close = faults_ep_close,
    .ep_stop = faults_ep_stop,
    .ep_fini = faults_ep_fini,
    .am_bcopy = faults_am_bcopy,
    .am_short = faults_am_short,
    .am_zcopy = faults_am_zcopy,
    .put = faults_put,
    .put_am = faults_put_am,
    .get = faults_get,
    .ep_flush = faults_ep_flush,
    .mem_register = faults_mem_register,
    .mem_deregister = faults_mem_deregister,
    .mem_revoke = faults_mem_revoke,
    .rkey_pack = faults_rkey_pack,
    .rkey_unpack = faults_rkey_unpack,
    .rkey_release = faults_rkey_release,
    .mem_share = faults_mem_share,
    .rkey_map = faults_rkey_map,
    .desc_release = faults_desc_release,
    .expose = faults_expose,
    .conceal = faults_conceal,
    .exposed = faults_exposed,
    .claim = faults_claim,
    .event_fd = faults_event_fd,
    .arm = faults_arm,
};

/* ---- life ---- */

faults_t *faults_create(uintptr_t ops, const faults_knobs_t *knobs)
{
    faults_t *faults = calloc(1, sizeof *faults);

    if (!faults)
        return NULL;
    faults->inner_ops = (const psc_transport_ops_t *)ops;
    faults->ops = faults_template;
    faults->ops.name = faults->inner_ops->name;
    faults->super.ops = &faults->ops;
    faults->knobs = *knobs;
    faults->busy_left = knobs->busy;
    faults_rest(faults);
    psc_list_init(&faults->breaking);
    return faults;
}

void faults_destroy(faults_t *faults)
{
    while (faults) {
        faults_t *next = faults->next;

        free(faults);
        faults = next;
    }
}

uintptr_t faults_ops(faults_t *faults)
{
    return (uintptr_t)&faults->ops;
}
