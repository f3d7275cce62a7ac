/* Receiving: every message that arrives at the eager portal table entry begins
 * with a psc_head_t. */

#include "portals.h"

static void portals_am_arrived(portals_ep_t *ep, const psc_head_t *head,
                               const uint8_t *body, size_t len)
{
    portals_iface_t *iface = portals_ep_iface(ep);
    psc_am_t am = {
        .id = head->id,
        .header_len = head->header_len,
        .header = body,
        .payload = body + head->header_len,
        .len = len - head->header_len,
    };

    if (!psc_kit_ep_works(&ep->kit))
        return;
    psc_kit_ep_count(&ep->kit);
    iface->super.up->am_recv(&ep->kit.super, &am);
}

void portals_arrived(void *owner, const uint8_t *bytes, size_t len)
{
    portals_ep_t *ep = owner;
    psc_head_t head;

    ep->kit.active_since_tick = true;
    if (!psc_head_read(&ep->kit, bytes, len, &head))
        return;
    bytes += sizeof(head);
    len -= sizeof(head);
    if (!portals_credit_take(ep, head.taken))
        psc_kit_ep_fail(&ep->kit, PSC_ERR_PROTOCOL, "a malformed header");
    else if (head.kind == PSC_KIT_EP_AM)
        portals_am_arrived(ep, &head, bytes, len);
    else
        psc_kit_ep_control(&ep->kit, head.kind, bytes, len);
}
