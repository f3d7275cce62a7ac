/* Sending messages: a short message is copied into the request itself, a longer
 * one into a buffer of the send pool. It is sent to the peer's shared receive
 * queue or written into the ring that the peer has announced (ring.c). */
#include <string.h>

#include "ib.h"
#include "pscompy/transport/kit/iov.h"

/* Notifies the peer that later messages are written into the ring that it has
 * announced. */
static psc_status_t ib_ring_switch(ib_ep_t *ep)
{
    psc_status_t status = ib_control_send(&ep->kit, IB_KIND_SWITCH, NULL, 0);

    if (status == PSC_OK)
        ep->way = IB_WAY_RING;
    return status;
}

psc_status_t ib_am_may(ib_ep_t *ep, uint32_t n)
{
    if (__builtin_expect(!psc_kit_ep_works(&ep->kit), 0))
        return psc_kit_ep_refuse(&ep->kit);
    if (!psc_credit_available(&ep->kit.credit) ||
        ib_queue_room(&ep->messages) < IB_RESERVE + n)
        return ib_ep_starve(ep);
    return ep->way == IB_WAY_ANNOUNCED ? ib_ring_switch(ep) : PSC_OK;
}

/* Writes the message to `image`: its head, the header and the payload. The head
 * reports the number of messages received from the peer. */
static size_t ib_image_make(ib_ep_t *ep, uint8_t *image, uint8_t id,
                            const void *header, uint8_t header_len,
                            const psc_iov_t *iov, size_t n_iov)
{
    psc_head_t head = psc_head_make(&ep->kit, PSC_KIT_EP_AM, id, header_len);
    uint8_t *at = image + sizeof(psc_head_t);

    memcpy(image, &head, sizeof(head));
    if (header_len > 0)
        memcpy(at, header, header_len);
    at += header_len;
    return (size_t)(psc_iov_gather(at, iov, n_iov) - image);
}

/* Posts a message: from a buffer of the send pool, which the completion of the
 * request frees, or inline if `buffer` is IB_NO_BUFFER. */
static psc_status_t ib_image_post(ib_ep_t *ep, uint8_t *image, size_t len,
                                  uint32_t buffer)
{
    ib_post_t post = {
        .opcode = IBV_WR_SEND,
        .n_pieces = 1,
        .copy = buffer == IB_NO_BUFFER,
        .signal = buffer != IB_NO_BUFFER,
        .job = {.buffer = buffer},
    };
    psc_status_t status;

    if (ep->way == IB_WAY_RING)
        len = ib_ring_seal(ep, image, len);
    post.pieces[0] = ib_piece(image, len);
    post.pieces[0].lkey = ib_ep_iface(ep)->sends.mr->lkey;
    if (ep->way == IB_WAY_RING)
        ib_ring_aim(ep, &post);
    status = ib_ep_post(ep, &ep->messages, &post);
    if (status == PSC_OK)
        ep->kit.credit.sent++;
    return status;
}

psc_status_t ib_am_short(psc_ep_t *self, uint8_t id, const void *header,
                         uint8_t header_len, const void *payload, size_t len)
{
    ib_ep_t *ep = ib_ep(self);
    psc_iov_t iov = {(void *)(uintptr_t)payload, len};
    uint8_t image[IB_INLINE_MAX] __attribute__((aligned(8)));
    psc_status_t status;

    if (sizeof(psc_head_t) + header_len + len + IB_TAIL_ROOM >
        ep->messages.inline_max)
        return ib_am_bcopy(self, id, header, header_len, &iov, 1);
    status = ib_am_may(ep, 1);
    if (status != PSC_OK)
        return status;
    len = ib_image_make(ep, image, id, header, header_len, &iov, 1);
    return ib_image_post(ep, image, len, IB_NO_BUFFER);
}

psc_status_t ib_am_bcopy(psc_ep_t *self, uint8_t id, const void *header,
                         uint8_t header_len, const psc_iov_t *iov, size_t n_iov)
{
    ib_ep_t *ep = ib_ep(self);
    ib_pool_t *pool = &ib_ep_iface(ep)->sends;
    size_t len = sizeof(psc_head_t) + header_len + psc_iov_total(iov, n_iov);
    psc_status_t status;
    uint32_t buffer;

    if (len + IB_TAIL_ROOM > pool->size)
        return PSC_ERR_INVALID;
    status = ib_am_may(ep, 1);
    if (status != PSC_OK)
        return status;
    if (pool->n_free == 0)
        return ib_ep_starve(ep);
    buffer = pool->free[--pool->n_free];
    len = ib_image_make(ep, ib_pool_at(pool, buffer), id, header, header_len,
                        iov, n_iov);
    status = ib_image_post(ep, ib_pool_at(pool, buffer), len, buffer);
    if (status != PSC_OK)
        ib_pool_give(pool, buffer);
    return status;
}
