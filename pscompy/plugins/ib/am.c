/* Messages on their way out: short ones are copied into the request itself,
 * longer ones into a buffer of the send pool. */
#include <errno.h>
#include <string.h>

#include "ib.h"

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
    if (__builtin_expect(ep->state != IB_EP_UP || ep->failing, 0))
        return ep->status < 0 ? ep->status : PSC_ERR_INVALID;
    if (ep->sent - ep->taken >= ep->peer.window ||
        ib_queue_room(&ep->messages) <= IB_RESERVE)
        return ib_ep_starve(ep);
    return PSC_OK;
}

/* ---- posting ---- */

static struct ibv_sge ib_piece(const void *bytes, size_t len)
{
    return (struct ibv_sge){.addr = (uintptr_t)bytes, .length = (uint32_t)len};
}

/* The head tells how much of the peer's was taken. */
static ib_head_t ib_head_make(ib_ep_t *ep, ib_kind_t kind, uint8_t id,
                              uint8_t header_len)
{
    ep->told = ep->received;
    return (ib_head_t){
        .kind = (uint8_t)kind,
        .id = id,
        .header_len = header_len,
        .taken = ep->received,
    };
}

static psc_status_t ib_ep_post(ib_ep_t *ep, const ib_post_t *post)
{
    if (ib_queue_post(&ep->messages, post))
        return PSC_OK;
    if (errno == ENOMEM)
        return ib_ep_starve(ep);
    ib_ep_fail(ep, PSC_ERR_TRANSPORT, "ib: posting a send: %s",
               strerror(errno));
    return PSC_ERR_TRANSPORT;
}

static psc_status_t ib_post_inline(ib_ep_t *ep, const ib_head_t *head,
                                   const void *header, const void *body,
                                   size_t len, bool signal)
{
    ib_post_t post = {
        .opcode = IBV_WR_SEND,
        .pieces = {ib_piece(head, sizeof(*head)),
                   ib_piece(header, head->header_len), ib_piece(body, len)},
        .n_pieces = 3,
        .copy = true,
        .signal = signal,
        .job = {.buffer = IB_NO_BUFFER},
    };

    return ib_ep_post(ep, &post);
}

psc_status_t ib_control_send(ib_ep_t *ep, ib_kind_t kind, const void *body,
                             size_t len)
{
    ib_head_t head = ib_head_make(ep, kind, 0, 0);

    if (ib_queue_room(&ep->messages) <= 1)
        return ib_ep_starve(ep);
    return ib_post_inline(ep, &head, NULL, body, len, true);
}

/* ---- active messages ---- */

psc_status_t ib_am_short(psc_ep_t *self, uint8_t id, const void *header,
                         uint8_t header_len, const void *payload, size_t len)
{
    ib_ep_t *ep = ib_ep(self);
    psc_status_t status = ib_am_may(ep);
    ib_head_t head;

    if (IB_HEAD_SIZE + header_len + len > ep->messages.inline_max) {
        psc_iov_t iov = {(void *)(uintptr_t)payload, len};

        return ib_am_bcopy(self, id, header, header_len, &iov, 1);
    }
    if (status != PSC_OK)
        return status;
    head = ib_head_make(ep, IB_KIND_AM, id, header_len);
    status = ib_post_inline(ep, &head, header, payload, len, false);
    if (status == PSC_OK)
        ep->sent++;
    return status;
}

static size_t ib_iov_copy(uint8_t *to, const psc_iov_t *iov, size_t n_iov)
{
    uint8_t *at = to;

    for (size_t i = 0; i < n_iov; i++) {
        if (iov[i].len > 0)
            memcpy(at, iov[i].base, iov[i].len);
        at += iov[i].len;
    }
    return (size_t)(at - to);
}

static size_t ib_iov_sum(const psc_iov_t *iov, size_t n_iov)
{
    size_t sum = 0;

    for (size_t i = 0; i < n_iov; i++)
        sum += iov[i].len;
    return sum;
}

/* A message's completion gives its buffer back. */
static psc_status_t ib_post_buffer(ib_ep_t *ep, uint32_t buffer, size_t len)
{
    ib_pool_t *pool = &ib_ep_iface(ep)->sends;
    ib_post_t post = {
        .opcode = IBV_WR_SEND,
        .pieces = {ib_piece(ib_pool_at(pool, buffer), len)},
        .n_pieces = 1,
        .signal = true,
        .job = {.buffer = buffer},
    };

    post.pieces[0].lkey = pool->mr->lkey;
    return ib_ep_post(ep, &post);
}

psc_status_t ib_am_bcopy(psc_ep_t *self, uint8_t id, const void *header,
                         uint8_t header_len, const psc_iov_t *iov,
                         size_t n_iov)
{
    ib_ep_t *ep = ib_ep(self);
    ib_pool_t *pool = &ib_ep_iface(ep)->sends;
    psc_status_t status = ib_am_may(ep);
    size_t len = IB_HEAD_SIZE + header_len + ib_iov_sum(iov, n_iov);
    uint32_t buffer;
    uint8_t *to;
    ib_head_t head;

    if (len > pool->size)
        return PSC_ERR_INVALID;
    if (status != PSC_OK)
        return status;
    if (pool->n_free == 0)
        return ib_ep_starve(ep);
    buffer = pool->free[--pool->n_free];
    to = ib_pool_at(pool, buffer);
    head = ib_head_make(ep, IB_KIND_AM, id, header_len);
    memcpy(to, &head, sizeof(head));
    if (header_len > 0)
        memcpy(to + IB_HEAD_SIZE, header, header_len);
    ib_iov_copy(to + IB_HEAD_SIZE + header_len, iov, n_iov);
    status = ib_post_buffer(ep, buffer, len);
    if (status == PSC_OK)
        ep->sent++;
    else
        pool->free[pool->n_free++] = buffer;
    return status;
}
