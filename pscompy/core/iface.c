/* Interfaces: opening a transport for a worker, and closing it. */
#include "worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lane.h"
#include "progress/progress.h"

static psc_status_t iface_adopt(psc_iface_slot_t *slot, char *reason)
{
    psc_status_t status;

    slot->ops->query(slot->iface, &slot->attr);
    status = psc_iface_check_attr(slot->ops, &slot->attr, reason);
    if (status != PSC_OK)
        return status;
    /* armed sleepers do not watch this interface yet, so wake them */
    psc_wake(slot->worker, PSC_WAKE_SPENT);
    if (psc_sleepers_watch(slot->worker, slot) < 0) {
        snprintf(reason, PSC_REASON_MAX, "its event descriptor: %s",
                 strerror(errno));
        return PSC_ERR_TRANSPORT;
    }
    return PSC_OK;
}

/* Close an interface. The fabric gets a limited number of progress calls to
 * release its memory. */
static void iface_close(psc_iface_slot_t *slot)
{
    slot->ops->close(slot->iface);
    for (int tries = 0; tries < 1000; tries++) {
        if (slot->ops->stop(slot->iface) != PSC_INPROGRESS)
            break;
        slot->ops->progress(slot->iface);
    }
    slot->ops->fini(slot->iface);
    free(slot);
}

static psc_status_t iface_open(psc_iface_slot_t *slot,
                               psc_open_params_t *params)
{
    psc_status_t status;

    params->user = slot;
    status = slot->ops->open(params, &slot->iface);
    if (status != PSC_OK) {
        free(slot);
        return status;
    }
    status = iface_adopt(slot, params->reason);
    if (status != PSC_OK)
        iface_close(slot);
    return status;
}

/* Append an interface to the worker's list. Returns the interface's index. */
static int iface_append(psc_interfaces_t *interfaces, psc_iface_slot_t *slot)
{
    psc_iface_slot_t **end = &interfaces->first;

    while (*end)
        end = &(*end)->next;
    *end = slot;
    return (int)interfaces->n++;
}

static int iface_add(psc_worker_t *worker, const psc_transport_ops_t *ops,
                     psc_open_params_t *params)
{
    psc_interfaces_t *interfaces = &worker->interfaces;
    psc_iface_slot_t *slot;
    psc_status_t status;

    if (interfaces->n == PSC_IFACES_MAX) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "more than %d transports; switch some off with PSP_<NAME>=0",
                 PSC_IFACES_MAX);
        return PSC_ERR_NO_RESOURCE;
    }
    slot = calloc(1, sizeof *slot);
    if (!slot)
        return PSC_ERR_NO_MEMORY;
    *slot = (psc_iface_slot_t){
        .worker = worker, .ops = ops, .index = interfaces->n, .every = 1};
    status = iface_open(slot, params);
    return status == PSC_OK ? iface_append(interfaces, slot) : (int)status;
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
    result = iface_add(worker, ops, &params);
    psc_worker_leave(worker);
    return result;
}

void psc_worker_query(psc_worker_t *worker, int iface, psc_iface_attr_t *attr_p)
{
    *attr_p = psc_iface_slot(&worker->interfaces, iface)->attr;
}

/* ---- closing ---- */

void psc_iface_close_all(psc_worker_t *worker)
{
    psc_interfaces_t *interfaces = &worker->interfaces;

    while (interfaces->first) {
        psc_iface_slot_t *slot = interfaces->first;

        interfaces->first = slot->next;
        iface_close(slot);
    }
}
