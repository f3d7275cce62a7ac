/* Recovery of the bulk queue, which carries puts and gets. If the peer's
 * adapter refuses one of them because its key is stale, the queue pairs of both
 * sides break, and the other requests in flight are flushed. The endpoint must
 * survive this. Both sides reset and reconnect the queue pair under the next
 * epoch number, send each other this number, and post the flushed requests
 * again. Repeating a put or get is harmless, because its buffers belong to this
 * transport until it has completed. */
#include <errno.h>
#include <string.h>

#include "ib.h"

/* Offset between the packet sequence numbers of two epochs, so that packets of
 * an earlier epoch are not accepted. */
#define IB_EPOCH_PSNS 0x10000u

/* Flushed requests go first: if the queue breaks again, `flushed` has room for
 * all of a queue, but not for others as well. */
bool ib_bulk_usable(const ib_ep_t *ep)
{
    return !ep->bulk.broken && ep->epoch == ep->peer_epoch &&
           ep->n_flushed == 0;
}

void ib_recover_start(ib_ep_t *ep)
{
    ib_queue_abort(&ep->bulk);
    if (!psc_link_listed(&ep->recovering))
        psc_list_push(&ib_ep_iface(ep)->recovering, &ep->recovering);
}

void ib_recover_keep(ib_ep_t *ep, const ib_post_t *post)
{
    ep->flushed[ep->n_flushed++] = *post;
}

void ib_recover_arrived(ib_ep_t *ep, const uint8_t *body, size_t len)
{
    uint32_t epoch;

    if (len == sizeof(epoch))
        memcpy(&epoch, body, sizeof(epoch));
    if (len != sizeof(epoch) || epoch != ep->peer_epoch + 1 ||
        epoch - ep->epoch > 1) {
        psc_kit_ep_fail(&ep->kit, PSC_ERR_PROTOCOL,
                        "a queue that was never broken");
        return;
    }
    ep->peer_epoch = epoch;
    ib_ep_feed(ep);
    if (ep->epoch != epoch)
        ib_recover_start(ep);
}

/* ---- steps, called by progress ---- */

static void ib_recover_anew(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);
    ib_qp_address_t place = ep->peer.bulk;
    uint32_t epoch = ep->epoch + 1;
    uint32_t own = ep->bulk.psn;

    if (ib_queue_room(&ep->messages) <= 1)
        return;
    place.psn = (place.psn + epoch * IB_EPOCH_PSNS) & IB_PSN_MASK;
    ep->bulk.psn = (own + epoch * IB_EPOCH_PSNS) & IB_PSN_MASK;
    if (ib_queue_reset(&ep->bulk, &iface->device) &&
        ib_queue_connect(&ep->bulk, &iface->device, &place,
                         &iface->settings.path))
        ep->epoch = epoch;
    else
        psc_kit_ep_fail(&ep->kit, PSC_ERR_TRANSPORT, "reconnecting a queue: %s",
                        strerror(errno));
    ep->bulk.psn = own;
    if (ep->epoch == epoch)
        ib_control_send(&ep->kit, IB_KIND_RECOVER, &epoch, sizeof(epoch));
}

static void ib_recover_repost(ib_ep_t *ep)
{
    uint32_t n = ep->n_flushed;

    ep->n_flushed = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!ib_queue_post(&ep->bulk, &ep->flushed[i]))
            ep->flushed[ep->n_flushed++] = ep->flushed[i];
    }
}

/* Completes the flushed puts and gets of an endpoint that has failed or closed,
 * with the endpoint's error. */
static void ib_recover_drop(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);

    psc_list_remove(&ep->recovering);
    while (ep->n_flushed > 0 && !ep->kit.dead) {
        psc_comp_t *comp = ep->flushed[--ep->n_flushed].job.comp;

        iface->n_starving--;
        iface->handled++;
        comp->func(comp, ep->kit.status);
    }
}

static void ib_recover_step(ib_ep_t *ep)
{
    if (!ib_queue_idle(&ep->bulk))
        return;
    if (ep->kit.state != PSC_KIT_EP_UP) {
        ib_recover_drop(ep);
    } else if (psc_kit_ep_fails(&ep->kit)) {
        return;
    } else if (ep->bulk.broken) {
        ib_recover_anew(ep);
    } else if (ep->epoch == ep->peer_epoch) {
        ib_recover_repost(ep);
        if (ep->n_flushed == 0)
            psc_list_remove(&ep->recovering);
        ib_ep_feed(ep);
    }
}

/* Continues the recoveries. A completion callback may end any endpoint, so the
 * loop stops after an endpoint whose requests were completed with an error. */
void ib_recover_poll(ib_iface_t *iface)
{
    psc_list_for_each(ep, &iface->recovering, ib_ep_t, recovering) {
        bool ended = ep->kit.state != PSC_KIT_EP_UP;

        ib_recover_step(ep);
        if (ended)
            break;
    }
}
