/* Completions of posted requests: releases the buffers that they used, notifies
 * the operations that end with them, and handles requests that have failed. */
#include "ib.h"

static psc_status_t ib_status_of(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return PSC_OK;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
        return PSC_ERR_PEER_LOST;
    /* the remote key, or the memory that it refers to, is not valid */
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
        return PSC_ERR_INVALID;
    default:
        return PSC_ERR_TRANSPORT;
    }
}

static void ib_job_end(ib_iface_t *iface, const ib_job_t *job,
                       psc_status_t status)
{
    psc_comp_t *comp = job->comp;

    if (job->buffer != IB_NO_BUFFER)
        ib_pool_give(&iface->sends, job->buffer);
    if (job->reg)
        ib_window_bound(job->reg, status == PSC_OK);
    if (!comp)
        return;
    iface->n_starving--;
    comp->func(comp, status);
}

/* Completes all requests up to serial number `serial`, because requests
 * complete in order, and a completion covers all earlier requests. */
static void ib_queue_ended(ib_queue_t *queue, uint32_t serial,
                           psc_status_t status)
{
    ib_ep_t *ep = queue->owner;
    ib_iface_t *iface = ib_ep_iface(ep);

    while (!ep->kit.dead && (int32_t)(serial - queue->done) >= 0) {
        ib_job_t job = queue->posts[queue->done % queue->size].job;
        bool last = queue->done++ == serial;

        ib_job_end(iface, &job, last ? status : PSC_OK);
    }
}

static void ib_messages_broke(ib_ep_t *ep, const struct ibv_wc *wc)
{
    psc_status_t status = ib_status_of(wc->status);

    if (ep->messages.broken)
        return;
    ib_queue_abort(&ep->messages);
    if (status == PSC_ERR_PEER_LOST)
        psc_kit_ep_fail(&ep->kit, status, "the peer does not answer (%s)",
                        ibv_wc_status_str(wc->status));
    else if (status == PSC_ERR_INVALID)
        psc_kit_ep_fail(&ep->kit, status,
                        "the peer's adapter refused a write into its memory "
                        "(a receive that it told of, PSP_TUPLEQ=1, or its "
                        "ring): %s",
                        ibv_wc_status_str(wc->status));
    else
        psc_kit_ep_fail(&ep->kit, status, "%s (vendor error 0x%x)",
                        ibv_wc_status_str(wc->status), wc->vendor_err);
}

/* Handles a failed completion of the bulk queue, which carries puts and gets:
 * the request that broke the queue ends with an error. The requests that were
 * flushed behind it are posted again when the queue is recovered (recover.c).
 * If the peer does not answer, all of them end after the endpoint's failure has
 * been reported. */
static void ib_bulk_broke(ib_ep_t *ep, const struct ibv_wc *wc)
{
    ib_queue_t *queue = &ep->bulk;
    const ib_post_t *post = &queue->posts[wc->wr_id % queue->size];
    psc_status_t status = ib_status_of(wc->status);

    if (status == PSC_ERR_PEER_LOST)
        ib_messages_broke(ep, wc);
    ib_recover_start(ep);
    if (post->job.comp &&
        (wc->status == IBV_WC_WR_FLUSH_ERR || status == PSC_ERR_PEER_LOST)) {
        ib_recover_keep(ep, post);
        queue->done++;
        return;
    }
    ib_queue_ended(queue, (uint32_t)wc->wr_id, status);
}

static void ib_complete_failed(ib_queue_t *queue, const struct ibv_wc *wc)
{
    ib_ep_t *ep = queue->owner;

    if (queue == &ep->bulk) {
        ib_bulk_broke(ep, wc);
    } else if (ep->kit.state == PSC_KIT_EP_PROVING &&
               ep->kit.proof.state == PSC_PROOF_AWAIT_CHALLENGE &&
               wc->status == IBV_WC_RETRY_EXC_ERR) {
        ib_connect_again(ep);
    } else {
        ib_messages_broke(ep, wc);
        ib_queue_ended(queue, (uint32_t)wc->wr_id, ib_status_of(wc->status));
    }
}

static void ib_complete_one(ib_iface_t *iface, const struct ibv_wc *wc)
{
    ib_queue_t *queue = ib_queue_find(&iface->queues, wc->qp_num);
    ib_ep_t *ep = queue ? queue->owner : NULL;

    if (!ep)
        return;
    iface->handled++;
    ib_ep_feed(ep);
    if (wc->status != IBV_WC_SUCCESS) {
        ib_complete_failed(queue, wc);
        return;
    }
    ep->kit.active_since_tick = true;
    ep->asked = false;
    ib_queue_ended(queue, (uint32_t)wc->wr_id, PSC_OK);
}

int ib_completions_take(ib_iface_t *iface, struct ibv_cq *cq,
                        struct ibv_wc wcs[IB_BATCH])
{
    int early = iface->early_cq == cq;
    int n;

    if (early) {
        wcs[0] = iface->early;
        iface->early_cq = NULL;
    }
    n = ibv_poll_cq(cq, (int)IB_BATCH - early, wcs + early);
    return early + (n > 0 ? n : 0);
}

void ib_complete_poll(ib_iface_t *iface)
{
    struct ibv_wc wcs[IB_BATCH];
    int n = ib_completions_take(iface, iface->device.send_cq, wcs);

    for (int i = 0; i < n; i++)
        ib_complete_one(iface, &wcs[i]);
}
