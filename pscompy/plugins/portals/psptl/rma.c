/* Puts and gets, each divided into fragments. */
#include "channel.h"

#include <stdlib.h>

#include "pscompy/transport/kit/clock.h"

/* maximum number of fragments (parts of puts and gets) in flight per
 * interface */
#define RMA_FRAGMENTS 256u

/* ---- memory ---- */

bool psptl_bulk_open(psptl_device_t *device)
{
    device->fragments = calloc(RMA_FRAGMENTS, sizeof(*device->fragments));
    if (!device->fragments)
        return false;
    for (unsigned i = 0; i < RMA_FRAGMENTS; i++) {
        device->fragments[i].op.kind = PSPTL_FRAGMENT;
        psc_list_push(&device->spare_fragments, &device->fragments[i].link);
    }
    return true;
}

static void bulk_free_all(psc_list_t *list)
{
    psc_link_t *link;

    while ((link = psc_list_pop(list)))
        free(psc_container_of(link, psptl_bulk_t, link));
}

void psptl_bulk_close(psptl_device_t *device)
{
    bulk_free_all(&device->bulks);
    bulk_free_all(&device->ended_bulks);
    bulk_free_all(&device->spare_bulks);
    free(device->fragments);
}

static psptl_bulk_t *bulk_take(psptl_device_t *device)
{
    psc_link_t *link = psc_list_pop(&device->spare_bulks);

    return link ? psc_container_of(link, psptl_bulk_t, link)
                : malloc(sizeof(psptl_bulk_t));
}

static psptl_bulk_t *bulk_make(psptl_channel_t *channel,
                               const psptl_order_t *order)
{
    psptl_bulk_t *bulk = bulk_take(channel->device);

    if (!bulk)
        return NULL;
    *bulk = (psptl_bulk_t){.order = *order, .channel = channel};
    psc_list_init(&bulk->link);
    channel->n_bulks++;
    channel->device->n_bulks++;
    return bulk;
}

static void bulk_give(psptl_bulk_t *bulk)
{
    bulk->channel->n_bulks--;
    bulk->channel->device->n_bulks--;
    psc_list_push(&bulk->channel->device->spare_bulks, &bulk->link);
}

/* ---- issuing ---- */

static int bulk_issue_tagged(const psptl_fragment_t *fragment)
{
    const psptl_bulk_t *bulk = fragment->bulk;
    const psptl_channel_t *channel = bulk->channel;
    const psptl_device_t *device = channel->device;
    const psptl_order_t *order = &bulk->order;

    return device->ni->PtlPut(
        device->md, (ptl_size_t)(uintptr_t)order->local, order->len,
        PTL_ACK_REQ, channel->peer_id, channel->peer.tag,
        order->bits | psptl_source_bits(channel->peer.source), 0,
        (void *)(uintptr_t)&fragment->op,
        psptl_header_data(order->word, order->number));
}

static int bulk_issue(const psptl_fragment_t *fragment)
{
    const psptl_bulk_t *bulk = fragment->bulk;
    psptl_device_t *device = bulk->channel->device;
    const psptl_order_t *order = &bulk->order;
    ptl_process_t target = bulk->channel->peer_id;
    ptl_pt_index_t pt = bulk->channel->peer.bulk;
    ptl_size_t local = (ptl_size_t)(uintptr_t)(order->local + fragment->at);
    void *op = (void *)(uintptr_t)&fragment->op;

    if (bulk->tagged)
        return bulk_issue_tagged(fragment);
    if (order->get)
        return device->ni->PtlGet(device->md, local, fragment->len, target, pt,
                                  order->bits, order->offset + fragment->at,
                                  op);
    return device->ni->PtlPut(device->md, local, fragment->len, PTL_ACK_REQ,
                              target, pt, order->bits,
                              order->offset + fragment->at, op, 0);
}

/* Issues a fragment. Returns false if the interface takes no more operations at
 * present. */
static bool bulk_fly(psptl_fragment_t *fragment)
{
    psptl_bulk_t *bulk = fragment->bulk;
    psptl_device_t *device = bulk->channel->device;
    int status;

    if (device->flying >= device->flying_max) {
        psptl_count(bulk->channel, PSPTL_COUNTER_event_room);
        return false;
    }
    status = bulk_issue(fragment);
    if (status != PTL_OK) {
        psptl_put_failed(bulk->channel, status);
        return false;
    }
    device->flying++;
    bulk->channel->n_flying++;
    psptl_count(bulk->channel, PSPTL_COUNTER_fragments);
    return true;
}

static size_t bulk_cut(const psptl_bulk_t *bulk)
{
    size_t left = bulk->order.len - bulk->issued;
    size_t most = bulk->channel->device->settings.fragment;

    return left < most ? left : most;
}

/* Issues the next fragment of a put or get. Returns false if no fragment is
 * free, or if the interface takes no more operations at present. */
static bool bulk_next(psptl_bulk_t *bulk)
{
    psptl_device_t *device = bulk->channel->device;
    psc_link_t *link = psc_list_pop(&device->spare_fragments);
    psptl_fragment_t *fragment;

    if (!link)
        return false;
    fragment = psc_container_of(link, psptl_fragment_t, link);
    fragment->bulk = bulk;
    fragment->at = bulk->issued;
    fragment->len = bulk_cut(bulk);
    fragment->attempts = 0;
    if (!bulk_fly(fragment)) {
        psc_list_push(&device->spare_fragments, &fragment->link);
        return false;
    }
    bulk->flying++;
    bulk->issued += fragment->len;
    return true;
}

/* Appends a put or get that has ended to `ended_bulks`. Only the next poll
 * reports its end, because bulk_end may run inside a call that the owner has
 * made. */
static void bulk_end(psptl_bulk_t *bulk)
{
    psc_list_remove(&bulk->link);
    psc_list_push(&bulk->channel->device->ended_bulks, &bulk->link);
}

unsigned psptl_bulk_report(psptl_device_t *device)
{
    psc_link_t *link;
    unsigned n = 0;

    while ((link = psc_list_pop(&device->ended_bulks))) {
        psptl_bulk_t *bulk = psc_container_of(link, psptl_bulk_t, link);
        const psptl_channel_t *channel = bulk->channel;

        n++;
        if (channel->owner)
            device->owner->done(channel->owner, bulk->order.cookie,
                                bulk->verdict);
        bulk_give(bulk);
    }
    return n;
}

static void bulk_late(psptl_device_t *device)
{
    int64_t now = psc_list_empty(&device->late_fragments) ? 0 : psc_clock_now();

    psc_list_for_each(late, &device->late_fragments, psptl_fragment_t, link) {
        if (late->retry_at > now)
            continue;
        if (bulk_fly(late)) {
            psc_list_remove(&late->link);
            psptl_count(late->bulk->channel, PSPTL_COUNTER_fragment_resends);
        } else if (!late->bulk->channel->failed) {
            return;
        }
    }
}

/* The puts and gets of a channel that has failed stay until it is destroyed;
 * those of other channels pass them. */
void psptl_bulk_go_on(psptl_device_t *device)
{
    bulk_late(device);
    psc_list_for_each(first, &device->bulks, psptl_bulk_t, link) {
        while (first->issued < first->order.len && bulk_next(first))
            ;
        if (first->issued == first->order.len)
            psc_list_remove(&first->link);
        else if (!first->channel->failed)
            return;
    }
}

bool psptl_bulk_start(psptl_channel_t *channel, const psptl_order_t *order)
{
    psptl_device_t *device = channel->device;
    psptl_bulk_t *bulk = bulk_make(channel, order);

    if (!bulk)
        return false;
    psc_list_push(&device->bulks, &bulk->link);
    psptl_bulk_go_on(device);
    return true;
}

/* A message gets its number when it is put, and later messages are delivered
 * after it; so it is put at once and in one piece, or not at all. */
psptl_verdict_t psptl_tag_put(psptl_channel_t *channel, psptl_order_t *order)
{
    psptl_device_t *device = channel->device;
    psptl_bulk_t *bulk;

    if (order->len > device->settings.fragment || !device->ni->ack_names_list)
        return PSPTL_UNCLAIMED;
    order->number = channel->sending.next;
    bulk = channel->sending.n_waiting > 0 ? NULL : bulk_make(channel, order);
    if (!bulk)
        return PSPTL_REFUSED;
    bulk->tagged = true;
    if (!bulk_next(bulk)) {
        bulk_give(bulk);
        return PSPTL_REFUSED;
    }
    channel->sending.next++;
    psptl_count(channel, PSPTL_COUNTER_tag_puts);
    psptl_count(channel, PSPTL_COUNTER_tag_direct);
    return PSPTL_OK;
}

/* ---- events ---- */

static bool bulk_transient(ptl_ni_fail_t fault)
{
    return fault == PTL_NI_DROPPED || fault == PTL_NI_UNDELIVERABLE ||
           fault == PTL_NI_PT_DISABLED;
}

static void bulk_retry(psptl_fragment_t *fragment, int64_t at)
{
    fragment->retry_at = at;
    psc_list_push(&fragment->bulk->channel->device->late_fragments,
                  &fragment->link);
}

/* Returns true if the failed fragment will be tried again. A message of
 * psptl_tag_put is tried until it arrives or the channel fails, because later
 * messages wait for its number. */
static bool bulk_again(psptl_fragment_t *fragment, ptl_ni_fail_t fault)
{
    psptl_channel_t *channel = fragment->bulk->channel;

    if (psptl_spare_failed(channel, fault))
        return false;
    if (fragment->bulk->tagged) {
        psptl_send_back_off(channel);
        if (!psptl_send_may_retry(channel, fault, &fragment->attempts))
            return false;
        bulk_retry(fragment, channel->sending.retry_at);
        return true;
    }
    if (!bulk_transient(fault) ||
        fragment->attempts >= channel->device->settings.retries)
        return false;
    bulk_retry(fragment, psc_clock_now() + psptl_backoff(fragment->attempts++));
    return true;
}

static void bulk_fragment_end(psptl_fragment_t *fragment,
                              psptl_verdict_t verdict)
{
    psptl_bulk_t *bulk = fragment->bulk;

    psc_list_push(&bulk->channel->device->spare_fragments, &fragment->link);
    bulk->flying--;
    if (verdict != PSPTL_OK) {
        /* PSPTL_LOST takes precedence over PSPTL_REFUSED: a fragment without
         * an acknowledgement may still reach the peer */
        if (bulk->verdict != PSPTL_LOST)
            bulk->verdict = verdict;
        /* all bytes count as issued, so the remaining fragments are not
         * issued */
        bulk->issued = bulk->order.len;
        psc_list_remove(&bulk->link);
    }
    if (bulk->flying == 0 && bulk->issued == bulk->order.len)
        bulk_end(bulk);
}

/* Returns the verdict of a fragment. A message of psptl_tag_put has arrived
 * even if its receive was too short. On a failed channel the verdict is LOST,
 * not REFUSED: a fragment is not tried again there, so it is not known whether
 * the region exists. */
static psptl_verdict_t bulk_verdict(const psptl_fragment_t *fragment,
                                    const ptl_event_t *event)
{
    bool tagged = fragment->bulk->tagged;

    if (event->ni_fail_type == PTL_NI_OK && tagged)
        return event->ptl_list == PTL_OVERFLOW_LIST ? PSPTL_UNCLAIMED
                                                    : PSPTL_OK;
    if (event->ni_fail_type == PTL_NI_OK && event->mlength == fragment->len)
        return PSPTL_OK;
    return tagged || fragment->bulk->channel->failed ||
                   event->ni_fail_type == PTL_NI_UNDELIVERABLE
               ? PSPTL_LOST
               : PSPTL_REFUSED;
}

void psptl_bulk_event(psptl_fragment_t *fragment, const ptl_event_t *event)
{
    psptl_channel_t *channel = fragment->bulk->channel;
    psptl_verdict_t verdict = bulk_verdict(fragment, event);

    channel->device->flying--;
    channel->n_flying--;
    if (fragment->bulk->tagged && event->ni_fail_type == PTL_NI_OK)
        channel->sending.backoff = 0;
    if (verdict == PSPTL_OK || verdict == PSPTL_UNCLAIMED ||
        !bulk_again(fragment, event->ni_fail_type))
        bulk_fragment_end(fragment, verdict);
}

/* ---- giving up ---- */

static void bulk_give_up(psptl_bulk_t *bulk)
{
    bulk->verdict = PSPTL_LOST;
    bulk->issued = bulk->order.len;
    psc_list_remove(&bulk->link);
    if (bulk->flying == 0)
        bulk_end(bulk);
}

void psptl_bulk_abort(psptl_channel_t *channel)
{
    psptl_device_t *device = channel->device;

    psc_list_for_each(late, &device->late_fragments, psptl_fragment_t, link) {
        if (late->bulk->channel == channel) {
            psc_list_remove(&late->link);
            bulk_fragment_end(late, PSPTL_LOST);
        }
    }
    psc_list_for_each(bulk, &device->bulks, psptl_bulk_t, link) {
        if (bulk->channel == channel)
            bulk_give_up(bulk);
    }
}
