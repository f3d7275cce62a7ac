/* Receiving: every message of the eager table entry begins with a head. */
#include <string.h>

#include "portals.h"

static void portals_am_arrived(portals_ep_t *ep, const portals_head_t *head,
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

    if (!psc_party_works(&ep->party))
        return;
    portals_count_arrival(ep);
    iface->super.up->am_recv(&ep->party.super, &am);
}

void portals_arrived(void *owner, const uint8_t *bytes, size_t len)
{
    portals_ep_t *ep = owner;
    portals_head_t head;

    ep->party.heard = true;
    if (len < PORTALS_HEAD_SIZE) {
        psc_party_fail(&ep->party, PSC_ERR_PROTOCOL,
                       "a message is shorter than its header");
        return;
    }
    memcpy(&head, bytes, sizeof(head));
    bytes += PORTALS_HEAD_SIZE;
    len -= PORTALS_HEAD_SIZE;
    if (head.header_len > PSC_AM_HEADER_MAX || head.header_len > len ||
        !portals_credit_take(ep, head.taken)) {
        psc_party_fail(&ep->party, PSC_ERR_PROTOCOL, "a malformed header");
        return;
    }
    if (head.kind == PORTALS_KIND_AM) {
        portals_am_arrived(ep, &head, bytes, len);
    } else if (head.kind == PORTALS_KIND_GOODBYE) {
        ep->party.goodbye = true;
        psc_party_fail(&ep->party, PSC_ERR_CLOSED, "the peer has closed");
    } else if (head.kind != PORTALS_KIND_CREDIT) {
        portals_meet_arrived(ep, head.kind, bytes, len);
    }
}
