/* Sending: messages are copied into slots; progress delivers them from
 * there. */
#include <stdlib.h>

#include "loop.h"
#include "pscompy/transport/kit/iov.h"

static loop_slot_t *loop_slot_take(loop_iface_t *iface)
{
    psc_link_t *link = psc_list_pop(&iface->spare);

    if (link)
        return psc_container_of(link, loop_slot_t, link);
    return malloc(sizeof(loop_slot_t) + iface->buffer_size);
}

static psc_status_t loop_send_check(const loop_ep_t *ep, uint8_t header_len,
                                    size_t len)
{
    const loop_iface_t *iface = loop_ep_iface(ep);

    if (!ep->peer)
        return ep->closed ? PSC_ERR_CLOSED : PSC_ERR_PEER_LOST;
    if (header_len > PSC_AM_HEADER_MAX || len > iface->buffer_size - header_len)
        return PSC_ERR_INVALID;
    return ep->peer->queued < iface->sendq_size ? PSC_OK : PSC_ERR_NO_RESOURCE;
}

psc_status_t loop_am_bcopy(psc_ep_t *self, uint8_t id, const void *header,
                           uint8_t header_len, const psc_iov_t *iov,
                           size_t n_iov)
{
    loop_ep_t *ep = (loop_ep_t *)self;
    loop_iface_t *iface = loop_ep_iface(ep);
    loop_slot_t *slot;
    psc_status_t status;
    size_t len = psc_iov_total(iov, n_iov);

    status = loop_send_check(ep, header_len, len);
    if (status != PSC_OK)
        return status;
    slot = loop_slot_take(iface);
    if (!slot)
        return PSC_ERR_NO_MEMORY;
    slot->to = ep->peer;
    slot->id = id;
    slot->header_len = header_len;
    if (header_len > 0)
        memcpy(slot->header, header, header_len);
    psc_iov_gather(slot->payload, iov, n_iov);
    slot->len = len;
    slot->to->queued++;
    slot->to->waiting++;
    psc_list_push(&iface->queue, &slot->link);
    loop_iface_wake(iface);
    return PSC_OK;
}

psc_status_t loop_am_short(psc_ep_t *ep, uint8_t id, const void *header,
                           uint8_t header_len, const void *payload, size_t len)
{
    const psc_iov_t piece = {(void *)(uintptr_t)payload, len};

    return loop_am_bcopy(ep, id, header, header_len, &piece, 1);
}
