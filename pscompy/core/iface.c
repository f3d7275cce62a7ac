/* Interfaces: opening a transport for a worker, and closing it. */
#include "iface.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "iface_check.h"
#include "lane_upcalls.h"
#include "progress/sleep.h"
#include "worker.h"

static psc_status_t iface_adopt(psc_iface_slot_t *slot, char *reason)
{
    psc_status_t status;

    slot->ops->query(slot->iface, &slot->attr);
    status = psc_iface_check_attr(slot->ops, &slot->attr, reason);
    if (status != PSC_OK)
        return status;
    /* sleepers that are armed do not watch this interface yet */
    psc_wake(slot->worker, PSC_WAKE_SPENT);
    if (psc_sleepers_watch(slot->worker, slot) < 0) {
        snprintf(reason, PSC_REASON_MAX, "its event descriptor: %s",
                 strerror(errno));
        return PSC_ERR_TRANSPORT;
    }
    return PSC_OK;
}

/* Close an interface. The fabric gets a limited time to release its memory. */
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

static int iface_open(psc_worker_t *worker, const psc_transport_ops_t *ops,
                      psc_open_params_t *params)
{
    psc_interfaces_t *interfaces = &worker->interfaces;
    psc_iface_slot_t *slot = &interfaces->slots[interfaces->n];
    psc_status_t status;

    if (interfaces->n == PSC_IFACES_MAX) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "more than %d transports; switch some off with PSP_<NAME>=0",
                 PSC_IFACES_MAX);
        return PSC_ERR_NO_RESOURCE;
    }
    slot->worker = worker;
    slot->ops = ops;
    slot->index = interfaces->n;
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
    return (int)interfaces->n++;
}

int psc_worker_open(psc_worker_t *worker, uintptr_t ops_address, uint32_t path,
                    const psc_setting_t *settings, uint32_t n_settings,
                    char *reason)
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
    result = psc_iface_check_ops(ops, reason);
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
    *attr_p = worker->interfaces.slots[iface].attr;
}

/* ---- closing ---- */

void psc_iface_close_all(psc_worker_t *worker)
{
    psc_iface_for_each(slot, &worker->interfaces)
        iface_close(slot);
}
