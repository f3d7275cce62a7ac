/* Receiving: messages are delivered from the slots into which they were copied.
 * A slot is free again when the protocol has read its message. */
#include "loop.h"

static void loop_slot_give_back(loop_iface_t *iface, loop_slot_t *slot)
{
    loop_ep_t *to = slot->to;

    psc_list_push_front(&iface->spare, &slot->link);
    to->queued--;
    loop_ep_free_if_idle(to);
}

void loop_desc_release(psc_iface_t *self, psc_desc_t *desc)
{
    loop_iface_t *iface = (loop_iface_t *)self;

    loop_slot_give_back(iface, (loop_slot_t *)desc);
    /* a send that found no free slot may be tried again */
    loop_iface_wake(iface);
}

static void loop_slot_deliver(loop_iface_t *iface, loop_slot_t *slot)
{
    loop_ep_t *to = slot->to;
    psc_am_t am = {
        .id = slot->id,
        .header_len = slot->header_len,
        .header = slot->header,
        .payload = slot->payload,
        .len = slot->len,
        .desc = (psc_desc_t *)slot,
    };

    to->waiting--;
    if (to->closed ||
        iface->super.up->am_recv(&to->super, &am) != PSC_INPROGRESS)
        loop_slot_give_back(iface, slot);
}

unsigned loop_iface_deliver(loop_iface_t *iface)
{
    unsigned n = 0;
    psc_link_t *link;

    while (n < LOOP_DELIVER_MAX && (link = psc_list_pop(&iface->queue))) {
        loop_slot_deliver(iface, psc_container_of(link, loop_slot_t, link));
        n++;
    }
    return n;
}
