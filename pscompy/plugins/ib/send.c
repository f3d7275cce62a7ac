/* Sending messages: short ones are copied into the request itself, longer ones
 * into a buffer of the send pool. They are sent to the peer's shared receive
 * queue or written into the ring that the peer has offered. */
#include <errno.h>
#include <string.h>

#include "ib.h"
#include "pscompy/transport/kit/iov.h"

/* ---- room ---- */

psc_status_t ib_ep_starve(ib_ep_t *ep)
{
    if (!ep->starving) {
        ep->starving = true;
        ib_ep_iface(ep)->n_starving++;
    }
    return PSC_ERR_NO_RESOURCE;
}

void ib_ep_feed(ib_ep_t *ep)
{
    if (ep->starving) {
        ep->starving = false;
        ib_ep_iface(ep)->n_starving--;
    }
}

static psc_status_t ib_am_may(ib_ep_t *ep)
{
    if (__builtin_expect(!psc_party_works(&ep->party), 0))
        return psc_party_refuse(&ep->party);
    if (!psc_credit_available(&ep->credit) ||
        ib_queue_room(&ep->messages) <= IB_RESERVE)
        return ib_ep_starve(ep);
    return ep->way == IB_WAY_OFFERED ? ib_ring_switch(ep) : PSC_OK;
}

/* ---- posting ---- */

static struct ibv_sge ib_piece(const void *bytes, size_t len)
{
    return (struct ibv_sge){.addr = (uintptr_t)bytes, .length = (uint32_t)len};
}

/* Every head carries a report of credit. */
static ib_head_t ib_head_make(ib_ep_t *ep, ib_kind_t kind, uint8_t id,
                              uint8_t header_len)
{
    return (ib_head_t){
        .kind = (uint8_t)kind,
        .id = id,
        .header_len = header_len,
        .taken = psc_credit_report(&ep->credit),
    };
}

static psc_status_t ib_ep_post(ib_ep_t *ep, const ib_post_t *post)
{
    if (ib_queue_post(&ep->messages, post))
        return PSC_OK;
    if (errno == ENOMEM)
        return ib_ep_starve(ep);
    psc_party_fail(&ep->party, PSC_ERR_TRANSPORT, "posting a send: %s",
                   strerror(errno));
    return PSC_ERR_TRANSPORT;
}

psc_status_t ib_control_send(ib_ep_t *ep, uint8_t kind, const void *body,
                             size_t len)
{
    ib_head_t head = ib_head_make(ep, kind, 0, 0);
    ib_post_t post = {
        .opcode = IBV_WR_SEND,
        .pieces = {ib_piece(&head, sizeof(head)), ib_piece(body, len)},
        .n_pieces = 2,
        .copy = true,
        .signal = true,
        .job = {.buffer = IB_NO_BUFFER},
    };

    if (ib_queue_room(&ep->messages) <= 1)
        return ib_ep_starve(ep);
    return ib_ep_post(ep, &post);
}

/* ---- active messages ---- */

/* Gathers the bytes that are sent: head, header, payload. */
static size_t ib_image_make(ib_ep_t *ep, uint8_t *image, uint8_t id,
                            const void *header, uint8_t header_len,
                            const psc_iov_t *iov, size_t n_iov)
{
    ib_head_t head = ib_head_make(ep, IB_KIND_AM, id, header_len);
    uint8_t *at = image + IB_HEAD_SIZE;

    memcpy(image, &head, sizeof(head));
    if (header_len > 0)
        memcpy(at, header, header_len);
    at += header_len;
    return (size_t)(psc_iov_gather(at, iov, n_iov) - image);
}

/* Sends from a buffer of the pool, which the completion releases, or inline if
 * `buffer` is IB_NO_BUFFER. */
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
    status = ib_ep_post(ep, &post);
    if (status == PSC_OK)
        ep->credit.sent++;
    return status;
}

psc_status_t ib_am_short(psc_ep_t *self, uint8_t id, const void *header,
                         uint8_t header_len, const void *payload, size_t len)
{
    ib_ep_t *ep = ib_ep(self);
    psc_iov_t iov = {(void *)(uintptr_t)payload, len};
    uint8_t image[IB_INLINE_MAX] __attribute__((aligned(8)));
    psc_status_t status;

    if (IB_HEAD_SIZE + header_len + len + IB_TAIL_ROOM >
        ep->messages.inline_max)
        return ib_am_bcopy(self, id, header, header_len, &iov, 1);
    status = ib_am_may(ep);
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
    psc_status_t status = ib_am_may(ep);
    size_t len = IB_HEAD_SIZE + header_len + psc_iov_total(iov, n_iov);
    uint32_t buffer;

    if (len + IB_TAIL_ROOM > pool->size)
        return PSC_ERR_INVALID;
    if (status != PSC_OK)
        return status;
    if (pool->n_free == 0)
        return ib_ep_starve(ep);
    buffer = pool->free[--pool->n_free];
    len = ib_image_make(ep, ib_pool_at(pool, buffer), id, header, header_len,
                        iov, n_iov);
    status = ib_image_post(ep, ib_pool_at(pool, buffer), len, buffer);
    if (status != PSC_OK)
        pool->free[pool->n_free++] = buffer;
    return status;
}
