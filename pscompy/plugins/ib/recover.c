/* Mending the queue for puts and gets. A put or get that the peer's adapter
 * refuses, because the key is stale, breaks the queue pairs of both sides, and
 * what else was under way comes back undone. That must not end the endpoint:
 * both sides begin the queue anew, under the next number (its epoch), tell
 * each other, and what came back undone is posted again. To do a put or get
 * twice does no harm: its buffers are ours until it has ended. */
#include <errno.h>
#include <string.h>

#include "ib.h"

/* Packets of an earlier epoch must not fit into a later one. */
#define IB_EPOCH_PSNS 0x10000u

bool ib_mend_usable(const ib_ep_t *ep)
{
    return !ep->bulk.broken && ep->epoch == ep->peer_epoch;
}

void ib_mend_start(ib_ep_t *ep)
{
    ib_queue_abort(&ep->bulk);
    if (!psc_link_listed(&ep->mending))
        psc_list_push(&ib_ep_iface(ep)->mending, &ep->mending);
}

void ib_mend_park(ib_ep_t *ep, const ib_post_t *post)
{
    ep->parked[ep->n_parked++] = *post;
}

void ib_mend_arrived(ib_ep_t *ep, const uint8_t *body, size_t len)
{
    uint32_t epoch;

    if (len == sizeof(epoch))
        memcpy(&epoch, body, sizeof(epoch));
    if (len != sizeof(epoch) || epoch != ep->peer_epoch + 1 ||
        epoch - ep->epoch > 1) {
        psc_party_fail(&ep->party, PSC_ERR_PROTOCOL,
                       "a queue that was never broken");
        return;
    }
    ep->peer_epoch = epoch;
    ib_ep_feed(ep);
    if (ep->epoch != epoch)
        ib_mend_start(ep);
}

/* ---- steps, from progress ---- */

static void ib_mend_anew(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);
    ib_place_t place = ep->peer.bulk;
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
        psc_party_fail(&ep->party, PSC_ERR_TRANSPORT, "mending a queue: %s",
                       strerror(errno));
    ep->bulk.psn = own;
    if (ep->epoch == epoch)
        ib_control_send(ep, IB_KIND_MEND, &epoch, sizeof(epoch));
}

static void ib_mend_repost(ib_ep_t *ep)
{
    uint32_t n = ep->n_parked;

    ep->n_parked = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!ib_queue_post(&ep->bulk, &ep->parked[i]))
            ep->parked[ep->n_parked++] = ep->parked[i];
    }
}

/* The endpoint has ended: nothing is posted again. */
static void ib_mend_drop(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);

    psc_list_remove(&ep->mending);
    while (ep->n_parked > 0 && !ep->dead) {
        psc_comp_t *comp = ep->parked[--ep->n_parked].job.comp;

        iface->n_starving--;
        iface->handled++;
        comp->func(comp, ep->party.status);
    }
}

static void ib_mend_step(ib_ep_t *ep)
{
    if (!ib_queue_idle(&ep->bulk))
        return;
    if (ep->party.state != PSC_PARTY_UP) {
        ib_mend_drop(ep);
    } else if (psc_party_fails(&ep->party)) {
        return;
    } else if (ep->bulk.broken) {
        ib_mend_anew(ep);
    } else if (ib_mend_usable(ep)) {
        ib_mend_repost(ep);
        if (ep->n_parked == 0)
            psc_list_remove(&ep->mending);
        ib_ep_feed(ep);
    }
}

/* A completion may end any endpoint, so one that dropped something is the
 * last of its pass. */
void ib_mend_poll(ib_iface_t *iface)
{
    psc_list_for_each(ep, &iface->mending, ib_ep_t, mending) {
        bool ended = ep->party.state != PSC_PARTY_UP;

        ib_mend_step(ep);
        if (ended)
            break;
    }
}
