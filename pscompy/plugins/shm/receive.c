/* Receiving messages: delivers the records that have arrived in the rings. */
#include <string.h>

#include "memory.h"

/* maximum number of records that one pass of progress handles per endpoint */
#define SHM_POLL_MAX 32u

/* Copies payload bytes of an arriving message into the pieces that am_begin()
 * has supplied; bytes beyond them are dropped. */
static void shm_incoming_copy(shm_incoming_t *in, const uint8_t *from,
                              size_t len)
{
    in->rest -= len;
    while (len > 0 && in->piece < in->dest.n_iov) {
        const psc_iov_t *iov = &in->dest.iov[in->piece];
        size_t here = iov->len > in->filled ? iov->len - in->filled : 0;
        size_t n = here < len ? here : len;

        if (n > 0)
            shm_ring_copy((uint8_t *)iov->base + in->filled, from, n);
        from += n;
        len -= n;
        in->filled += n;
        if (in->filled >= iov->len) {
            in->piece++;
            in->filled = 0;
        }
    }
}

static bool shm_am_receive_whole(shm_ep_t *ep, shm_word_t word,
                                 const uint8_t *bytes)
{
    uint64_t copy[SHM_PRIVATE_MAX / sizeof(uint64_t)];
    psc_am_t am = {
        .id = word.id,
        .header_len = word.header_len,
        .header = copy,
        .len = word.len - word.header_len,
    };

    if (ep->incoming.rest > 0 || word.header_len > PSC_AM_HEADER_MAX ||
        word.header_len > word.len)
        return false;
    if (word.len <= SHM_PRIVATE_MAX) {
        memcpy(copy, bytes, word.len);
        am.payload = (const uint8_t *)copy + word.header_len;
    } else {
        memcpy(copy, bytes, word.header_len);
        am.payload = bytes + word.header_len;
    }
    ep->super.iface->up->am_recv(&ep->super, &am);
    return true;
}

static bool shm_am_receive_first(shm_ep_t *ep, shm_word_t word,
                                 const uint8_t *bytes)
{
    shm_incoming_t *in = &ep->incoming;
    uint64_t header[PSC_AM_HEADER_MAX / sizeof(uint64_t)], total;
    size_t start = sizeof total + word.header_len;

    if (in->rest > 0 || word.header_len > PSC_AM_HEADER_MAX || start > word.len)
        return false;
    memcpy(&total, bytes, sizeof total);
    if (total > SHM_RING_MAX || total <= word.len - start)
        return false;
    memcpy(header, bytes + sizeof total, word.header_len);
    *in = (shm_incoming_t){.rest = total};
    ep->super.iface->up->am_begin(&ep->super, word.id, header, word.header_len,
                                  total, &in->dest);
    /* The upcall may have closed the endpoint. */
    if (ep->state <= SHM_EP_LEAVING)
        shm_incoming_copy(in, bytes + start, word.len - start);
    return true;
}

static bool shm_am_receive_next(shm_ep_t *ep, shm_word_t word,
                                const uint8_t *bytes)
{
    shm_incoming_t *in = &ep->incoming;

    if (word.len == 0 || word.len > in->rest)
        return false;
    shm_incoming_copy(in, bytes, word.len);
    if (in->rest == 0)
        ep->super.iface->up->am_end(&ep->super, in->dest.cookie);
    return true;
}

typedef bool (*shm_receive_fn_t)(shm_ep_t *ep, shm_word_t word,
                                 const uint8_t *bytes);

static const shm_receive_fn_t shm_receive[SHM_N_KINDS] = {
    [SHM_KIND_WHOLE] = shm_am_receive_whole,
    [SHM_KIND_FIRST] = shm_am_receive_first,
    [SHM_KIND_NEXT] = shm_am_receive_next,
    [SHM_KIND_ASK] = shm_get_asked,
    [SHM_KIND_TAKEN] = shm_adverts_taken,
};

static bool shm_am_receive(shm_ep_t *ep, uint64_t raw)
{
    shm_word_t word = shm_word_unpack(raw);

    if (word.kind >= SHM_N_KINDS || word.kind == SHM_KIND_NONE ||
        word.reserved != 0 || word.len > shm_ring_room(&ep->rx.ring))
        return false;
    return shm_receive[word.kind](ep, word, shm_consumer_bytes(&ep->rx));
}

static void shm_am_refuse(shm_ep_t *ep)
{
    if (ep->rx.ring.slot_size == SHM_WORD_SIZE)
        shm_ep_fail(ep, PSC_ERR_NO_MEMORY, "shm: the ring cannot be mapped");
    else
        shm_ep_fail(ep, PSC_ERR_PROTOCOL,
                    "shm: the peer wrote an invalid record");
}

static bool shm_am_readable(const shm_ep_t *ep)
{
    return ep->state == SHM_EP_UP || ep->state == SHM_EP_LEAVING;
}

/* Delivers the records that have arrived on one endpoint. An upcall may close
 * and finalise the endpoint (the structure stays until progress returns), so
 * the state is checked again after each upcall. */
unsigned shm_am_poll(shm_ep_t *ep)
{
    unsigned n = 0;
    uint64_t word;

    while (n < SHM_POLL_MAX && shm_am_readable(ep) &&
           (word = shm_consumer_peek(&ep->rx)) != 0) {
        uint32_t lines =
            shm_ring_lines(shm_word_unpack(word).len + SHM_WORD_SIZE);

        if (!shm_am_receive(ep, word)) {
            shm_am_refuse(ep);
            break;
        }
        n++;
        if (shm_consumer_advance(&ep->rx, lines))
            shm_doorbell_ring(ep->doorbell);
    }
    if (n == 0 && ep->state == SHM_EP_LEAVING)
        shm_ep_fail(ep, ep->status, "%s", ep->reason);
    return n;
}
