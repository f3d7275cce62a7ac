/* Messages through the rings: sending by copy, and delivering what came. */
#include <string.h>

#include "pscompy/transport/kit/iov.h"
#include "shm.h"

#define SHM_POLL_MAX 32u /* records of one endpoint in one pass */

/* ---- sending ---- */

/* Where the next byte of a gathered payload is. */
typedef struct shm_gather {
    const psc_iov_t *iov;
    size_t filled;
} shm_gather_t;

static void shm_gather_copy(shm_gather_t *from, uint8_t *to, size_t len)
{
    while (len > 0) {
        size_t here = from->iov->len - from->filled;
        size_t n = here < len ? here : len;

        if (n > 0)
            memcpy(to, (const char *)from->iov->base + from->filled, n);
        to += n;
        len -= n;
        from->filled += n;
        if (from->filled == from->iov->len) {
            from->iov++;
            from->filled = 0;
        }
    }
}

/* Half of the ring, so that a message fits even if the consumer is late with
 * telling what it has freed (see shm_consumer_advance). */
size_t shm_am_max(const shm_geometry_t *geometry)
{
    size_t records = geometry->slots / 2;
    return records * (geometry->slot_size - SHM_WORD_SIZE) - sizeof(uint64_t);
}

/* Lines of a message that takes several records: all but the last are full. */
static uint32_t shm_am_lines(const shm_ring_t *ring, size_t len)
{
    size_t bytes = len + sizeof(uint64_t), room = shm_ring_room(ring);
    size_t full = bytes / room, rest = bytes % room;

    return (uint32_t)(full * (ring->slot_size / SHM_LINE)) +
           (rest > 0 ? shm_ring_lines(rest + SHM_WORD_SIZE) : 0);
}

psc_status_t shm_am_reserve(shm_ep_t *ep, uint32_t lines)
{
    psc_status_t status;

    if (__builtin_expect(ep->state != SHM_EP_UP, 0))
        return ep->status < 0 ? ep->status : PSC_ERR_INVALID;
    status = shm_producer_reserve(&ep->tx, lines);
    if (__builtin_expect(status == PSC_ERR_PROTOCOL, 0))
        shm_ep_fail(ep, status, "shm: the peer freed lines it never had");
    return status;
}

void shm_am_publish(shm_ep_t *ep, uint64_t word, uint32_t bytes)
{
    shm_producer_publish(&ep->tx, word, shm_ring_lines(bytes + SHM_WORD_SIZE));
    shm_ep_wake(ep);
}

psc_status_t shm_am_short(psc_ep_t *super, uint8_t id, const void *header,
                          uint8_t header_len, const void *payload, size_t len)
{
    shm_ep_t *ep = shm_ep(super);
    uint32_t bytes = (uint32_t)(header_len + len);
    psc_status_t status =
        shm_am_reserve(ep, shm_ring_lines(bytes + SHM_WORD_SIZE));
    uint8_t *to;

    if (status != PSC_OK)
        return status;
    to = shm_producer_begin(&ep->tx);
    if (header_len > 0)
        memcpy(to, header, header_len);
    if (len > 0)
        memcpy(to + header_len, payload, len);
    shm_am_publish(ep, shm_word_pack(SHM_KIND_WHOLE, header_len, id, bytes),
                   bytes);
    ep->tx.need = 0;
    return PSC_OK;
}

static void shm_am_send_whole(shm_ep_t *ep, uint8_t id, const void *header,
                              uint8_t header_len, shm_gather_t *from,
                              size_t len)
{
    uint8_t *to = shm_producer_begin(&ep->tx);
    uint32_t bytes = (uint32_t)(header_len + len);

    if (header_len > 0)
        memcpy(to, header, header_len);
    shm_gather_copy(from, to + header_len, len);
    shm_am_publish(ep, shm_word_pack(SHM_KIND_WHOLE, header_len, id, bytes),
                   bytes);
}

/* Returns how much of the payload went. */
static size_t shm_am_send_first(shm_ep_t *ep, uint8_t id, const void *header,
                                uint8_t header_len, shm_gather_t *from,
                                uint64_t total)
{
    uint8_t *to = shm_producer_begin(&ep->tx);
    uint32_t room = shm_ring_room(&ep->tx.ring);
    size_t len = room - sizeof total - header_len;

    memcpy(to, &total, sizeof total);
    if (header_len > 0)
        memcpy(to + sizeof total, header, header_len);
    shm_gather_copy(from, to + sizeof total + header_len, len);
    shm_am_publish(ep, shm_word_pack(SHM_KIND_FIRST, header_len, id, room),
                   room);
    return len;
}

static void shm_am_send_rest(shm_ep_t *ep, uint8_t id, shm_gather_t *from,
                             size_t rest)
{
    uint32_t room = shm_ring_room(&ep->tx.ring);

    while (rest > 0) {
        uint32_t len = rest < room ? (uint32_t)rest : room;

        shm_gather_copy(from, shm_producer_begin(&ep->tx), len);
        shm_am_publish(ep, shm_word_pack(SHM_KIND_NEXT, 0, id, len), len);
        rest -= len;
    }
}

psc_status_t shm_am_bcopy(psc_ep_t *super, uint8_t id, const void *header,
                          uint8_t header_len, const psc_iov_t *iov,
                          size_t n_iov)
{
    shm_ep_t *ep = shm_ep(super);
    size_t len = psc_iov_total(iov, n_iov), bytes = header_len + len;
    bool whole = bytes <= shm_ring_room(&ep->tx.ring);
    shm_gather_t from = {iov, 0};
    psc_status_t status;

    if (bytes > shm_am_max(&shm_ep_iface(ep)->geometry))
        return PSC_ERR_INVALID;
    status = shm_am_reserve(
        ep, whole ? shm_ring_lines(bytes + SHM_WORD_SIZE)
                  : shm_am_lines(&ep->tx.ring, bytes));
    if (status != PSC_OK)
        return status;
    if (whole) {
        shm_am_send_whole(ep, id, header, header_len, &from, len);
    } else {
        len -= shm_am_send_first(ep, id, header, header_len, &from, len);
        shm_am_send_rest(ep, id, &from, len);
    }
    ep->tx.need = 0;
    return PSC_OK;
}

/* ---- receiving ---- */

/* Copy into the protocol's pieces; what they cannot take is dropped. */
static void shm_incoming_copy(shm_incoming_t *in, const uint8_t *from,
                              size_t len)
{
    in->rest -= len;
    while (len > 0 && in->piece < in->dest.n_iov) {
        const psc_iov_t *iov = &in->dest.iov[in->piece];
        size_t here = iov->len > in->filled ? iov->len - in->filled : 0;
        size_t n = here < len ? here : len;

        if (n > 0)
            memcpy((char *)iov->base + in->filled, from, n);
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

    if (in->rest > 0 || word.header_len > PSC_AM_HEADER_MAX ||
        start > word.len)
        return false;
    memcpy(&total, bytes, sizeof total);
    if (total > SHM_RING_MAX || total <= word.len - start)
        return false;
    memcpy(header, bytes + sizeof total, word.header_len);
    *in = (shm_incoming_t){.rest = total};
    ep->super.iface->up->am_begin(&ep->super, word.id, header,
                                  word.header_len, total, &in->dest);
    if (ep->state <= SHM_EP_LEAVING) /* the upcall may have closed it */
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
    [SHM_KIND_ASK] = shm_share_asked,
};

static bool shm_am_receive(shm_ep_t *ep, uint64_t raw)
{
    shm_word_t word = shm_word_unpack(raw);

    if (word.kind >= SHM_N_KINDS || word.kind == SHM_KIND_NONE ||
        word.reserved != 0 || word.len > shm_ring_room(&ep->rx.ring))
        return false;
    return shm_receive[word.kind](ep, word, shm_consumer_bytes(&ep->rx));
}

static bool shm_am_readable(const shm_ep_t *ep)
{
    return ep->state == SHM_EP_UP || ep->state == SHM_EP_LEAVING;
}

/* Deliver what has arrived on one endpoint. Upcalls may close it, even free
 * it as far as the core is concerned (the structure lives on until the end
 * of progress), so the state is looked at again after each. */
unsigned shm_am_poll(shm_ep_t *ep)
{
    unsigned n = 0;
    uint64_t word;

    while (n < SHM_POLL_MAX && shm_am_readable(ep) &&
           (word = shm_consumer_peek(&ep->rx)) != 0) {
        uint32_t lines =
            shm_ring_lines(shm_word_unpack(word).len + SHM_WORD_SIZE);

        if (!shm_am_receive(ep, word)) {
            shm_ep_fail(ep, PSC_ERR_PROTOCOL,
                        "shm: the peer wrote nonsense into its ring");
            break;
        }
        n++;
        if (shm_consumer_advance(&ep->rx, lines))
            shm_bell_ring(ep->bell);
    }
    if (n == 0 && ep->state == SHM_EP_LEAVING)
        shm_ep_fail(ep, ep->status, "%s", ep->reason);
    return n;
}
