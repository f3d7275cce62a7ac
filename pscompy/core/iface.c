/* Interfaces: opening a transport for a worker, what is refused of it, and
 * closing it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "conn.h"

/* ---- what a transport must have ---- */

static psc_status_t iface_check_ops(const psc_transport_ops_t *ops,
                                     char *reason)
{
    if (ops->abi != PSC_TRANSPORT_ABI || ops->size != sizeof *ops) {
        snprintf(reason, PSC_REASON_MAX,
                 "built for transport ABI %u, this core has %u; rebuild it "
                 "against the installed headers",
                 ops->abi, PSC_TRANSPORT_ABI);
        return PSC_ERR_UNSUPPORTED;
    }
    if (!ops->name || !ops->open || !ops->query || !ops->progress ||
        !ops->close || !ops->stop || !ops->fini || !ops->ep_create ||
        !ops->ep_address || !ops->ep_connect || !ops->ep_close ||
        !ops->ep_stop || !ops->ep_fini || !ops->am_bcopy) {
        snprintf(reason, PSC_REASON_MAX,
                 "the ops table lacks a mandatory function (transport.h)");
        return PSC_ERR_UNSUPPORTED;
    }
    return PSC_OK;
}

/* A capability without its functions would crash later. */
static psc_status_t iface_check_caps(const psc_transport_ops_t *ops,
                                      const psc_iface_attr_t *attr,
                                      char *reason)
{
    const char *lacks = NULL;
    bool rma = attr->caps & (PSC_CAP_PUT | PSC_CAP_GET);

    if (attr->caps & PSC_CAP_AM_SHORT && !ops->am_short)
        lacks = "AM_SHORT needs am_short";
    else if (attr->caps & PSC_CAP_AM_ZCOPY && !ops->am_zcopy)
        lacks = "AM_ZCOPY needs am_zcopy";
    else if (attr->caps & PSC_CAP_PUT && !ops->put)
        lacks = "PUT needs put";
    else if (attr->caps & PSC_CAP_GET && !ops->get)
        lacks = "GET needs get";
    else if (attr->caps & PSC_CAP_PUT && !(attr->caps & PSC_CAP_PUT_REMOTE) &&
             !ops->ep_flush)
        lacks = "PUT without PUT_REMOTE needs ep_flush";
    else if (rma && (!ops->mem_register || !ops->mem_deregister ||
                     !ops->rkey_pack || !ops->rkey_unpack ||
                     !ops->rkey_release))
        lacks = "PUT and GET need memory registration";
    else if (attr->caps & PSC_CAP_MAP &&
             (!ops->mem_share || !ops->rkey_map || !ops->mem_deregister ||
              !ops->rkey_pack))
        lacks = "MAP needs mem_share, rkey_map, mem_deregister and rkey_pack";
    else if (attr->caps & PSC_CAP_EVENT && (!ops->event_fd || !ops->arm))
        lacks = "EVENT needs event_fd and arm";
    else if (attr->caps & PSC_CAP_TAG &&
             (!ops->tag_ready || !ops->tag_post || !ops->tag_cancel ||
              !ops->tag_send))
        lacks = "TAG needs tag_ready, tag_post, tag_cancel and tag_send";
    else if (attr->max_bcopy < 1024 || attr->max_iov < 8)
        lacks = "max_bcopy must be at least 1024 and max_iov 8";
    else if (attr->rail > UINT16_MAX)
        lacks = "rail must be below 65536";
    if (!lacks)
        return PSC_OK;
    snprintf(reason, PSC_REASON_MAX, "%s", lacks);
    return PSC_ERR_UNSUPPORTED;
}

static uint32_t iface_bit(const psc_iface_slot_t *slot)
{
    return 1u << (slot - slot->worker->ifaces);
}

static int iface_watch(psc_iface_slot_t *slot, int set)
{
    if (!(slot->attr.caps & PSC_CAP_EVENT))
        return 0;
    return psc_worker_watch(set, slot->ops->event_fd(slot->iface), EPOLLIN,
                            iface_bit(slot));
}

/* Sleepers that have armed did so without this interface. */
static int iface_watch_by_all(psc_iface_slot_t *slot)
{
    psc_wake(slot->worker, PSC_WAKE_SPENT);
    if (!(slot->attr.caps & PSC_CAP_EVENT))
        return 0;
    return psc_sleepers_watch(slot->worker, slot->ops->event_fd(slot->iface),
                              iface_bit(slot));
}

int psc_iface_watch_all(psc_worker_t *worker, int set)
{
    for (int i = 0; i < worker->n_ifaces; i++) {
        if (iface_watch(&worker->ifaces[i], set) < 0)
            return -1;
    }
    return 0;
}

static psc_status_t iface_adopt(psc_iface_slot_t *slot, char *reason)
{
    psc_status_t status;

    slot->ops->query(slot->iface, &slot->attr);
    status = iface_check_caps(slot->ops, &slot->attr, reason);
    if (status != PSC_OK)
        return status;
    if (iface_watch_by_all(slot) < 0) {
        snprintf(reason, PSC_REASON_MAX, "its event descriptor: %s",
                 strerror(errno));
        return PSC_ERR_TRANSPORT;
    }
    return PSC_OK;
}

/* The fabric has a limited time to let go of memory that it holds. */
static void iface_close(psc_iface_slot_t *slot)
{
    slot->ops->close(slot->iface);
    for (int tries = 0; tries < 1000; tries++) {
        if (slot->ops->stop(slot->iface) != PSC_INPROGRESS)
            break;
        slot->ops->progress(slot->iface);
    }
    slot->ops->fini(slot->iface);
}

static int iface_open(psc_worker_t *worker,
                              const psc_transport_ops_t *ops,
                              psc_open_params_t *params)
{
    psc_iface_slot_t *slot = &worker->ifaces[worker->n_ifaces];
    psc_status_t status;

    if (worker->n_ifaces == PSC_IFACES_MAX) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "more than %d transports; switch some off with PSP_<NAME>=0",
                 PSC_IFACES_MAX);
        return PSC_ERR_NO_RESOURCE;
    }
    slot->worker = worker;
    slot->ops = ops;
    slot->every = 1;
    params->user = slot;
    status = ops->open(params, &slot->iface);
    if (status != PSC_OK)
        return status;
    status = iface_adopt(slot, params->reason);
    if (status != PSC_OK) {
        iface_close(slot);
        return status;
    }
    return worker->n_ifaces++;
}

int psc_worker_open(psc_worker_t *worker, uintptr_t ops_address,
                    uint32_t path, const psc_setting_t *settings,
                    uint32_t n_settings, char *reason)
{
    const psc_transport_ops_t *ops = (const psc_transport_ops_t *)ops_address;
    psc_open_params_t params = {.abi = PSC_TRANSPORT_ABI,
                                .worker = worker->config.index,
                                .path = path,
                                .up = &psc_lane_upcalls,
                                .settings = settings,
                                .n_settings = n_settings,
                                .reason = reason};
    int result;

    reason[0] = 0;
    result = iface_check_ops(ops, reason);
    if (result != PSC_OK)
        return result;
    result = psc_worker_enter(worker, 0);
    if (result != PSC_OK)
        return result;
    result = iface_open(worker, ops, &params);
    psc_worker_leave(worker);
    return result;
}

void psc_worker_query(psc_worker_t *worker, int iface, psc_iface_attr_t *attr_p)
{
    *attr_p = worker->ifaces[iface].attr;
}

/* ---- closing ---- */

void psc_iface_close_all(psc_worker_t *worker)
{
    for (int i = 0; i < worker->n_ifaces; i++)
        iface_close(&worker->ifaces[i]);
}
