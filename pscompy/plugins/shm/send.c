/* Sending messages: copies them into the rings. */
#include <string.h>

#include "pscompy/transport/kit/iov.h"
#include "shm.h"

/* Position in the pieces of a payload: the piece that is being copied, and how
 * much of it was copied. */
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
            shm_ring_copy(to, (const uint8_t *)from->iov->base + from->filled,
                          n);
        to += n;
        len -= n;
        from->filled += n;
        if (from->filled == from->iov->len) {
            from->iov++;
            from->filled = 0;
        }
    }
}

/* Returns the length of the longest message. It takes half of the ring, so that
 * a message fits although the consumer reports freed lines late (see
 * shm_consumer_advance). */
size_t shm_am_max(const shm_geometry_t *geometry)
{
    size_t records = geometry->slots / 2;
    return records * (geometry->slot_size - SHM_WORD_SIZE) - sizeof(uint64_t);
}

/* Returns the number of lines of a message that needs several records; all but
 * the last record are full. */
static uint32_t shm_am_lines(const shm_ring_t *ring, size_t len)
{
    size_t piece = shm_ring_piece(ring), room = piece - SHM_WORD_SIZE;
    size_t bytes = len + sizeof(uint64_t);
    size_t full = bytes / room, rest = bytes % room;

    return (uint32_t)(full * (piece / SHM_LINE)) +
           (rest > 0 ? shm_ring_lines(rest + SHM_WORD_SIZE) : 0);
}

/* Not inlined, so that the fast path saves no registers. */
static __attribute__((noinline)) psc_status_t shm_am_make_room(shm_ep_t *ep,
                                                               uint32_t lines)
{
    psc_status_t status = shm_producer_reserve(&ep->tx, lines);

    shm_release_begin(shm_ep_iface(ep));
    if (status == PSC_ERR_PROTOCOL)
        shm_ep_fail(ep, status,
                    "shm: the peer freed more lines than were used");
    else if (status != PSC_OK)
        /* an endpoint that waits for free lines must be active, because sleep.c
         * asks only the peers of active endpoints to wake us */
        shm_active_add(ep);
    return status;
}

psc_status_t shm_am_reserve(shm_ep_t *ep, uint32_t lines)
{
    if (__builtin_expect(ep->state != SHM_EP_UP, 0))
        return ep->status < 0 ? ep->status : PSC_ERR_INVALID;
    if (__builtin_expect(shm_producer_fits(&ep->tx, lines), 1))
        return PSC_OK;
    return shm_am_make_room(ep, lines);
}

/* Wakes the receiver in the way that its flag `sleeping` asks for. The bit on
 * its bitmap is set after the record was published (bitmap.h). Not inlined, so
 * that the fast path saves no registers. */
__attribute__((noinline)) void shm_ep_signal(shm_ep_t *ep)
{
    uint32_t asked = atomic_exchange_explicit(&ep->tx.ring.control->sleeping, 0,
                                              memory_order_relaxed);

    if ((asked & SHM_WAKE_BITMAP) != 0 && ep->peer_bit < SHM_BITMAP_BITS)
        shm_bitmap_set(ep->peer_bitmap, ep->peer_bit);
    if ((asked & SHM_WAKE_DOORBELL) != 0)
        shm_doorbell_ring(ep->doorbell);
}

void shm_ep_wake(shm_ep_t *ep)
{
    _Atomic uint32_t *sleeping = &ep->tx.ring.control->sleeping;

    if (ep->fenced)
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(
            atomic_load_explicit(sleeping, memory_order_relaxed) != 0, 0))
        shm_ep_signal(ep);
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

/* Returns the number of payload bytes in the first record. */
static size_t shm_am_send_first(shm_ep_t *ep, uint8_t id, const void *header,
                                uint8_t header_len, shm_gather_t *from,
                                uint64_t total)
{
    uint8_t *to = shm_producer_begin(&ep->tx);
    uint32_t room = shm_ring_piece(&ep->tx.ring) - SHM_WORD_SIZE;
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
    uint32_t room = shm_ring_piece(&ep->tx.ring) - SHM_WORD_SIZE;

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
    bool whole = bytes + SHM_WORD_SIZE <= shm_ring_piece(&ep->tx.ring);
    shm_gather_t from = {iov, 0};
    psc_status_t status;

    if (bytes > shm_am_max(&shm_ep_iface(ep)->geometry))
        return PSC_ERR_INVALID;
    status = shm_am_reserve(ep, whole ? shm_ring_lines(bytes + SHM_WORD_SIZE)
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
