/* Rings: a peer that sends many messages writes them by RDMA into slots that
 * are reserved for it, and we find them by polling memory, before the adapter
 * reports a completion.
 *
 *   receiver  RING(address, key) ->
 *             <- SWITCH    sender: later messages are written into the ring
 *
 * A slot ends with a tail, which is written last; the message lies directly
 * before the tail. The tail's serial is the number of the message, so slots
 * need not be cleared. A slot is free again when the peer learns that its
 * message was received, because rings and receive buffers share their credits.
 *
 * Each write carries an immediate value, so that it raises a completion.
 * Otherwise a receiver that sleeps on the completion channel would miss the
 * message, and the sender cannot know whether the receiver sleeps. */
#include <errno.h>
#include <string.h>

#include "ib.h"

/* Body of the control message RING: where the slots of the ring are. Their
 * number is the window of the side that sends RING (the messages that its peer
 * may have in flight). */
typedef struct ib_ring_address {
    uint64_t address;
    uint32_t rkey, reserved;
} ib_ring_address_t;

typedef struct ib_tail {
    uint32_t len, serial;
} ib_tail_t;

_Static_assert(sizeof(ib_tail_t) <= IB_TAIL_ROOM - 7, "and 7 bytes between");

static size_t ib_ring_even(size_t len)
{
    return (len + 7) & ~(size_t)7;
}

/* ---- making ---- */

void ib_ring_announce(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);
    const ib_settings_t *settings = &iface->settings;
    ib_ring_address_t ring = {0};

    if (iface->n_rings >= settings->rings || ib_queue_room(&ep->messages) <= 1)
        return;
    if (!ib_pool_open(&ep->ring, &iface->device, settings->buffer_size,
                      settings->window, IBV_ACCESS_REMOTE_WRITE)) {
        psc_iface_log(&iface->super, 2,
                      "no ring for a peer: %s (ulimit -l; "
                      "PSP_IB_RDMA_PEERS)",
                      strerror(errno));
        /* announce no further rings, because no more memory can be locked */
        iface->settings.rings = iface->n_rings;
        return;
    }
    iface->n_rings++;
    ring.address = (uintptr_t)ep->ring.base;
    ring.rkey = ep->ring.mr->rkey;
    ib_control_send(&ep->kit, IB_KIND_RING, &ring, sizeof(ring));
}

void ib_ring_close(ib_ep_t *ep)
{
    if (!ep->ring.base)
        return;
    ib_pool_close(&ep->ring);
    ib_ep_iface(ep)->n_rings--;
}

/* ---- switching ---- */

void ib_ring_announced(ib_ep_t *ep, const uint8_t *body, size_t len)
{
    ib_ring_address_t ring;

    if (len == sizeof(ring))
        memcpy(&ring, body, sizeof(ring));
    if (len != sizeof(ring) || ep->way != IB_WAY_QUEUE) {
        psc_kit_ep_fail(&ep->kit, PSC_ERR_PROTOCOL, "a ring that cannot be");
        return;
    }
    ep->slots = ring.address;
    ep->slots_rkey = ring.rkey;
    ep->way = IB_WAY_ANNOUNCED;
}

void ib_ring_begun(ib_ep_t *ep)
{
    ib_iface_t *iface = ib_ep_iface(ep);

    if (!ep->ring.base || psc_link_listed(&ep->ringing))
        psc_kit_ep_fail(&ep->kit, PSC_ERR_PROTOCOL,
                        "a ring that was not announced");
    else
        psc_list_push(&iface->ringing, &ep->ringing);
}

/* ---- writing ---- */

size_t ib_ring_seal(const ib_ep_t *ep, uint8_t *image, size_t len)
{
    ib_tail_t tail = {.len = (uint32_t)len, .serial = ep->kit.credit.sent + 1};
    size_t even = ib_ring_even(len);

    memset(image + len, 0, even - len);
    memcpy(image + even, &tail, sizeof(tail));
    return even + sizeof(tail);
}

void ib_ring_aim(const ib_ep_t *ep, ib_post_t *post)
{
    size_t size = ib_ep_iface(ep)->settings.buffer_size;
    uint32_t slot = ep->kit.credit.sent % ep->peer.window;

    post->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    post->address = ep->slots + (slot + 1) * size - post->pieces[0].length;
    post->rkey = ep->slots_rkey;
}

/* ---- reading ---- */

/* The serial in the tail is read with acquire order, so that the message is
 * read after it. */
const uint8_t *ib_ring_next(ib_ep_t *ep, size_t *len_p)
{
    const ib_pool_t *ring = &ep->ring;
    uint32_t slot = ep->kit.credit.received % ring->n;
    const uint8_t *end = ib_pool_at(ring, slot) + ring->size;
    const ib_tail_t *tail = (const void *)(end - sizeof(ib_tail_t));
    uint32_t len;

    if (__atomic_load_n(&tail->serial, __ATOMIC_ACQUIRE) !=
        ep->kit.credit.received + 1)
        return NULL;
    len = __atomic_load_n(&tail->len, __ATOMIC_RELAXED);
    if (len > ring->size - sizeof(*tail)) {
        psc_kit_ep_fail(&ep->kit, PSC_ERR_PROTOCOL,
                        "a message beyond its slot");
        return NULL;
    }
    *len_p = len;
    return (const uint8_t *)tail - ib_ring_even(len);
}
