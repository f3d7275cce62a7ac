/* Endpoints: creating, addresses, closing. Their states and failures are in
 * transport/kit/endpoint.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ib.h"

#define IB_ADDRESS_MAGIC 0x62696370u /* the bytes "pcib" */
#define IB_ADDRESS_VERSION 2u

/* Posts a keepalive, a write of no bytes. The peer's adapter acknowledges this
 * write as long as the peer's process exists, also while the process is
 * computing. */
void ib_ep_ask(psc_kit_ep_t *kit)
{
    ib_ep_t *ep = ib_ep(&kit->super);
    ib_post_t post = {
        .opcode = IBV_WR_RDMA_WRITE,
        .signal = true,
        .job = {.buffer = IB_NO_BUFFER},
    };

    if (kit->state != PSC_KIT_EP_UP || ep->asked ||
        ib_queue_room(&ep->messages) <= IB_RESERVE)
        return;
    ep->asked = ib_queue_post(&ep->messages, &post);
    /* the completion of this keepalive must wake us, whether it succeeds or
     * fails */
    ib_ep_starve(ep);
}

/* ---- creating ---- */

static bool ib_ep_open(ib_iface_t *iface, ib_ep_t *ep)
{
    uint32_t sendq = iface->settings.sendq;

    if (!ib_device_reserve(&iface->device, (iface->eps.n + 1) * 2 * sendq) ||
        !ib_queue_open(&ep->messages, &iface->device, sendq, ep))
        return false;
    ep->flushed = calloc(sendq, sizeof(*ep->flushed));
    if (!ep->flushed || !ib_queue_open(&ep->bulk, &iface->device, sendq, ep)) {
        ib_queue_close(&ep->messages);
        free(ep->flushed);
        return false;
    }
    ib_queue_enlist(&iface->queues, &ep->messages);
    ib_queue_enlist(&iface->queues, &ep->bulk);
    return true;
}

/* Returns false if there are several rails and the port of this rail is down.
 * If this rail took part, the connection would fail on all rails. */
static bool ib_ep_useful(ib_iface_t *iface)
{
    char name[PSC_REASON_MAX];

    if (iface->device.paths == 1 || ib_device_active(&iface->device))
        return true;
    ib_device_name(&iface->device, name, sizeof(name));
    psc_iface_log(&iface->super, 2, "%s is down, and left out", name);
    return false;
}

psc_status_t ib_ep_create(psc_iface_t *self, void *user, psc_ep_t **ep_p)
{
    ib_iface_t *iface = ib_iface(self);
    ib_ep_t *ep = ib_ep_useful(iface) ? calloc(1, sizeof(*ep)) : NULL;

    if (!ep)
        return PSC_ERR_NO_RESOURCE;
    ep->kit.super = (psc_ep_t){self, user};
    psc_list_init(&ep->recovering);
    psc_list_init(&ep->ringing);
    if (!ib_ep_open(iface, ep)) {
        psc_iface_log(self, 1, "no queue pair: %s (PSP_IB_SENDQ_SIZE)",
                      strerror(errno));
        free(ep);
        return PSC_ERR_NO_MEMORY;
    }
    psc_kit_ep_join(&ep->kit, &iface->eps, ep->messages.qp->qp_num);
    ep->kit.credit.step = iface->settings.pending;
    *ep_p = &ep->kit.super;
    return PSC_OK;
}

/* ---- addresses ---- */

psc_status_t ib_ep_address(psc_ep_t *self, uint8_t *address, size_t *len_p)
{
    ib_ep_t *ep = ib_ep(self);
    const ib_iface_t *iface = ib_ep_iface(ep);
    ib_address_t own = {
        .magic = IB_ADDRESS_MAGIC,
        .version = IB_ADDRESS_VERSION,
        .ethernet = ib_device_ethernet(&iface->device),
        .window = iface->settings.window,
        .buffer_size = (uint32_t)iface->settings.buffer_size,
    };

    if (*len_p < sizeof(own))
        return PSC_ERR_INVALID;
    ib_queue_address(&ep->messages, &iface->device, &own.messages);
    ib_queue_address(&ep->bulk, &iface->device, &own.bulk);
    memcpy(address, &own, sizeof(own));
    *len_p = sizeof(own);
    return PSC_OK;
}

bool ib_address_unpack(const uint8_t *bytes, size_t len,
                       ib_address_t *address_p)
{
    if (len != sizeof(*address_p))
        return false;
    memcpy(address_p, bytes, sizeof(*address_p));
    return address_p->magic == IB_ADDRESS_MAGIC &&
           address_p->version == IB_ADDRESS_VERSION && address_p->window > 0 &&
           (address_p->window & (address_p->window - 1)) == 0 &&
           address_p->messages.mtu >= IBV_MTU_256 &&
           address_p->messages.mtu <= IBV_MTU_4096 &&
           address_p->bulk.mtu == address_p->messages.mtu;
}

/* ---- closing ---- */

static bool ib_ep_speaks(const ib_ep_t *ep)
{
    return ep->messages.connected && !ep->messages.broken && !ep->kit.goodbye &&
           ep->kit.role != PSC_ROLE_SELF;
}

void ib_ep_close(psc_ep_t *self)
{
    ib_ep_t *ep = ib_ep(self);

    psc_list_remove(&ep->ringing);
    if (psc_kit_ep_expects_goodbye(&ep->kit) && ib_ep_speaks(ep))
        ib_control_send(&ep->kit, PSC_KIT_EP_GOODBYE, NULL, 0);
    else if (ep->kit.status != PSC_ERR_CONNECT ||
             ep->kit.state != PSC_KIT_EP_FAILED)
        ib_queue_abort(&ep->messages);
    psc_kit_ep_close(&ep->kit);
}

/* Returns PSC_INPROGRESS until all messages of the endpoint have completed,
 * which means that they have arrived. Then stops the queue pairs, so that the
 * peer can no longer access this process's memory. */
psc_status_t ib_ep_stop(psc_ep_t *self)
{
    ib_ep_t *ep = ib_ep(self);

    /* the peer has sent its goodbye and accepts no more messages */
    if (ep->kit.goodbye)
        ib_queue_abort(&ep->messages);
    if (ep->messages.broken || ep->kit.goodbye)
        ib_queue_abort(&ep->bulk);
    if (!ib_queue_idle(&ep->messages) || !ib_queue_idle(&ep->bulk) ||
        psc_link_listed(&ep->recovering))
        return PSC_INPROGRESS;
    ib_queue_abort(&ep->messages);
    ib_queue_abort(&ep->bulk);
    return PSC_OK;
}

static void ib_ep_forget(ib_iface_t *iface, ib_queue_t *queue)
{
    ib_queue_strike(&iface->queues, queue);
    for (; queue->done != queue->posted; queue->done++) {
        const ib_job_t *job = &queue->posts[queue->done % queue->size].job;

        if (job->buffer != IB_NO_BUFFER)
            ib_pool_give(&iface->sends, job->buffer);
        if (job->reg)
            ib_window_bound(job->reg, false);
        if (job->comp)
            iface->n_starving--;
    }
}

void ib_ep_free(psc_kit_ep_t *kit)
{
    ib_ep_t *ep = ib_ep(&kit->super);
    ib_iface_t *iface = ib_ep_iface(ep);

    ib_ep_forget(iface, &ep->messages);
    ib_ep_forget(iface, &ep->bulk);
    ib_queue_close(&ep->messages);
    ib_queue_close(&ep->bulk);
    ib_ring_close(ep);
    free(ep->flushed);
    free(ep);
}

void ib_ep_fini(psc_ep_t *self)
{
    ib_ep_t *ep = ib_ep(self);
    ib_iface_t *iface = ib_ep_iface(ep);

    ib_ep_feed(ep);
    psc_kit_ep_leave(&ep->kit);
    psc_list_remove(&ep->recovering);
    psc_list_remove(&ep->ringing);
    iface->n_starving -= ep->n_flushed;
    ep->n_flushed = 0;
    /* Stop both queue pairs: their buffers may be reused only after the queue
     * pairs are destroyed. */
    ib_queue_abort(&ep->messages);
    ib_queue_abort(&ep->bulk);
    if (!iface->in_progress)
        psc_kit_eps_free(&iface->eps, ib_ep_free);
}
