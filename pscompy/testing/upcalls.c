/* The upcalls of the inner transport, passed to the core for the wrapper's
 * interface and endpoints. Upcalls of a broken endpoint are dropped. */
#include "wrapper.h"

static psc_ep_t *outer(psc_ep_t *inner)
{
    faults_ep_t *ep = inner->user;

    return &ep->super;
}

static const psc_upcalls_t *up_of(psc_ep_t *inner)
{
    return outer(inner)->iface->up;
}

static bool silent(psc_ep_t *inner)
{
    return ep_of(outer(inner))->broken;
}

static psc_status_t up_am_recv(psc_ep_t *inner, const psc_am_t *am)
{
    return silent(inner) ? PSC_OK : up_of(inner)->am_recv(outer(inner), am);
}

static void up_am_begin(psc_ep_t *inner, uint8_t id, const void *header,
                        uint8_t header_len, uint64_t len, psc_dest_t *dest_p)
{
    *dest_p = (psc_dest_t){.iov = NULL};
    if (!silent(inner))
        up_of(inner)->am_begin(outer(inner), id, header, header_len, len,
                               dest_p);
}

static void up_am_end(psc_ep_t *inner, void *cookie)
{
    if (!silent(inner))
        up_of(inner)->am_end(outer(inner), cookie);
}

static void up_ep_up(psc_ep_t *inner)
{
    up_of(inner)->ep_up(outer(inner));
}

static void up_ep_failed(psc_ep_t *inner, psc_status_t status,
                         const char *reason)
{
    if (!silent(inner))
        up_of(inner)->ep_failed(outer(inner), status, reason);
}

static void up_log(psc_iface_t *inner, int level, const char *line)
{
    faults_t *faults = inner->user;

    faults->super.up->log(&faults->super, level, line);
}

static void up_holding(psc_iface_t *inner, int holding)
{
    faults_t *faults = inner->user;

    faults->super.up->holding(&faults->super, holding);
}

const psc_upcalls_t faults_upcalls = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_upcalls_t),
    .am_recv = up_am_recv,
    .am_begin = up_am_begin,
    .am_end = up_am_end,
    .ep_up = up_ep_up,
    .ep_failed = up_ep_failed,
    .log = up_log,
    .holding = up_holding,
};
