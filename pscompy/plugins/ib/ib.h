/* The declarations that this transport's files share: the interface, its
 * endpoints, and the format of a message. The files from the top down, each of
 * which calls only files below it:
 *
 *   transport.c  the operations table; opening, polling, shutting down
 *   sleep.c      descriptors that wake us, the clock of the endpoints
 *   settings.c   the settings of PSP_IB_*
 *   receive.c    messages that arrive in receive buffers and in rings
 *   complete.c   completions of posted requests
 *   connect.c    connecting the queue pairs and proving the token
 *   ep.c         endpoints: creating, addresses, closing
 *   memory.c     registration, put and get
 *   recover.c    recovery of the bulk queue after a put or get was refused
 *   send.c       sending messages
 *   ring.c       rings: slots into which a peer that sends much writes by RDMA
 *   post.c       posting to an endpoint's queues, control messages
 *   cache.h      memory registrations that are kept for reuse
 *   driver.h     verbs, independent of the files above
 *
 * An endpoint has two queues. The first carries messages. A message arrives in
 * a buffer of the shared receive queue or, if the sender is busy (sends many
 * messages), in a ring that only this sender uses. A peer may have RECVQ_SIZE
 * messages in flight before their receipt is reported. The second queue
 * ("bulk") carries puts and gets, so that a message does not wait behind bulk
 * data. */
#pragma once

#include "cache.h"
#include "driver.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/endpoint_messages.h"
#include "pscompy/transport/kit/operations.h"
#include "pscompy/transport/transport.h"

/* Number of requests in a send queue that are reserved for control messages
 * (credits, greetings, the goodbye) and for the marker of ib_queue_abort. */
#define IB_RESERVE 4u
/* number of calls of progress between two polls of the epoll set, which
 * contains the timer of the endpoints (psc_kit_eps_t.clock), unless the
 * interface is armed for sleeping */
#define IB_QUIET_POLLS 4096u

typedef struct ib_iface ib_iface_t;
typedef struct ib_ep ib_ep_t;

/* ---- settings ---- */

typedef struct ib_settings {
    ib_choice_t choice; /* choice.hca is valid during ib_open only */
    ib_path_t path;
    int64_t connect_ns, keepalive_ns;
    size_t buffer_size;
    /* messages that a peer may have in flight: RECVQ_SIZE, rounded to a power
     * of two */
    uint32_t window;
    uint32_t sendq, send_buffers;
    uint32_t pending;
    /* a peer that has sent this many messages gets the address of a ring
     * (ring.c) */
    uint32_t busy;
    uint32_t rings; /* upper bound of the rings (ring.c) of this interface */
    /* upper bound of the slots of all rings of this interface together */
    uint64_t ring_slots;
    uint32_t cache_regions;
    uint64_t cache_bytes;
    /* if memory cannot be registered, send its bytes in messages */
    bool fallbacks;
} ib_settings_t;

/* ---- the interface ---- */

typedef enum ib_notice {
    IB_NOTICE_NONE,
    IB_NOTICE_ERRORS, /* only a failed completion raises an event */
    IB_NOTICE_ALL
} ib_notice_t;

struct ib_iface {
    psc_iface_t super;
    ib_settings_t settings;
    ib_device_t device;
    ib_pool_t recvs, sends;
    ib_cache_t cache;
    ib_queues_t queues;
    psc_kit_eps_t eps;
    /* endpoints whose bulk queue (for puts and gets) is recovering
     * (recover.c) */
    psc_list_t recovering;
    /* endpoints whose peer writes into the ring that was announced to it
     * (ring.c) */
    psc_list_t ringing;
    uint32_t n_rings;
    /* Number of endpoints of which the next completion must wake us (because a
     * send found no room, or a keepalive is in flight), plus number of puts and
     * gets in flight. While it is not 0, every completion of the send queue
     * raises an event. */
    uint32_t n_starving;
    /* number of events handled in this call of progress */
    unsigned handled;
    unsigned polls;
    bool in_progress;
    bool armed;
    /* the last call of progress has taken all messages that had arrived */
    bool drained;
    /* which completions raise an event: notices[0] of the receive queue,
     * notices[1] of the send queue */
    ib_notice_t notices[2];
    /* `early` is a completion that ib_arm() took from the queue `early_cq`, and
     * that the next call of progress processes. early_cq is NULL if there is
     * none. */
    struct ibv_cq *early_cq;
    struct ibv_wc early;
    int epoll;
};

/* ---- endpoints ---- */

/* The way in which messages of an endpoint reach the peer. */
typedef enum ib_way {
    IB_WAY_QUEUE, /* messages are sent to the peer's shared receive queue */
    /* messages are sent to the peer's shared receive queue, but the peer has
     * sent the address of a ring */
    IB_WAY_ANNOUNCED,
    IB_WAY_RING /* messages are written into the peer's ring */
} ib_way_t;

/* Format of the endpoint address, the bytes that ep_address returns. */
typedef struct ib_address {
    uint32_t magic;
    uint16_t version;
    uint16_t ethernet;
    uint32_t window, buffer_size;
    ib_qp_address_t messages, bulk;
} ib_address_t;

struct ib_ep {
    psc_kit_ep_t kit;
    psc_link_t recovering; /* link in the interface's list `recovering` */
    psc_link_t ringing; /* link in the interface's list `ringing` */
    ib_queue_t messages, bulk;
    ib_way_t way;
    uint64_t slots; /* remote address of the ring that the peer has announced */
    uint32_t slots_rkey;
    /* the ring into which this peer may write; `base` is NULL if there is
     * none */
    ib_pool_t ring;
    /* epoch: how often this side has reconnected its bulk queue; peer_epoch:
     * how often the peer has */
    uint32_t epoch, peer_epoch;
    ib_post_t
        *flushed; /* puts and gets that were flushed, to be posted again */
    uint32_t n_flushed;
    /* the last send found no room, or a keepalive is in flight;
     * iface->n_starving counts this endpoint */
    bool starving;
    bool asked; /* a keepalive (a write of no bytes) is in flight */
    ib_address_t peer;
};

/* ---- a message ---- */

typedef enum ib_kind {
    /* announces a ring to the receiver of this message, into which it may write
     * its messages (ring.c) */
    IB_KIND_RING = PSC_N_KIT_EP_KINDS,
    /* announces that the sender writes its later messages into the ring */
    IB_KIND_SWITCH,
    /* announces that the sender has reconnected its bulk queue; body: the
     * sender's epoch (4 bytes) */
    IB_KIND_RECOVER
} ib_kind_t;

/* maximum number of bytes of a ring's slot that a message cannot use: the tail
 * (8 bytes), and padding for alignment */
#define IB_TAIL_ROOM 15u

static inline ib_iface_t *ib_iface(psc_iface_t *iface)
{
    return (ib_iface_t *)iface;
}

static inline ib_ep_t *ib_ep(psc_ep_t *ep)
{
    return (ib_ep_t *)ep;
}

static inline ib_iface_t *ib_ep_iface(const ib_ep_t *ep)
{
    return (ib_iface_t *)ep->kit.super.iface;
}

PSC_OPERATIONS(ib);

/* ---- transport.c ---- */

uintptr_t ib_transport(void);

/* ---- settings.c ---- */

psc_status_t ib_settings_read(const psc_open_params_t *params,
                              ib_settings_t *settings_p);

/* Reduces `window` and the number of rings so that `recvs` receive buffers
 * suffice. */
void ib_settings_fit(ib_settings_t *settings, uint32_t recvs);

/* ---- sleep.c ---- */

psc_status_t ib_sleep_open(ib_iface_t *iface);
void ib_sleep_close(ib_iface_t *iface);
/* Called by progress: handles the events of the interface's epoll set,
 * including those of the clock. */
void ib_sleep_look(ib_iface_t *iface);

/* ---- ep.c ---- */

void ib_ep_free(psc_kit_ep_t *kit);
/* Unpacks the endpoint address of a peer. Returns false if the bytes are not a
 * valid address. */
bool ib_address_unpack(const uint8_t *bytes, size_t len,
                       ib_address_t *address_p);
/* Checks by an empty RDMA write, which the peer's adapter acknowledges, whether
 * the peer is alive. */
void ib_ep_ask(psc_kit_ep_t *kit);

/* ---- connect.c ---- */

/* Resets and connects the queue pairs again, because the connector's hello was
 * not acknowledged. */
void ib_connect_again(ib_ep_t *ep);

/* ---- post.c ---- */

/* Posts a request to one of the endpoint's two queues. Returns
 * PSC_ERR_NO_RESOURCE if the queue of the device is full. */
psc_status_t ib_ep_post(ib_ep_t *ep, ib_queue_t *queue, const ib_post_t *post);
/* Sends a control message, which is short enough to be copied inline. `kit` is
 * the member `kit` of an ib_ep_t. */
psc_status_t ib_control_send(psc_kit_ep_t *kit, uint8_t kind, const void *body,
                             size_t len);
/* Notes that the endpoint found no room to send, so that its next completion
 * must wake us. Always returns PSC_ERR_NO_RESOURCE. */
psc_status_t ib_ep_starve(ib_ep_t *ep);
void ib_ep_feed(ib_ep_t *ep);

/* ---- send.c ---- */

/* Returns PSC_OK if a message that takes `n` requests may be sent now. */
psc_status_t ib_am_may(ib_ep_t *ep, uint32_t n);

/* ---- receive.c ---- */

void ib_receive_poll(ib_iface_t *iface);
/* Called by progress: delivers the messages that peers have written into the
 * rings (ring.c). */
void ib_ring_poll(ib_iface_t *iface);

/* ---- complete.c ---- */

void ib_complete_poll(ib_iface_t *iface);
/* Takes up to IB_BATCH completions of the completion queue `cq`. If ib_arm()
 * has already taken a completion, that one is the first. */
int ib_completions_take(ib_iface_t *iface, struct ibv_cq *cq,
                        struct ibv_wc wcs[IB_BATCH]);

/* ---- ring.c ---- */

/* Announces a ring to the endpoint's peer, unless the limit of rings is
 * reached. Called for a peer that sends many messages. */
void ib_ring_announce(ib_ep_t *ep);
/* Frees the ring of the endpoint. Called after the queue pair is destroyed, so
 * that the peer can no longer write into the ring. */
void ib_ring_close(ib_ep_t *ep);
void ib_ring_announced(ib_ep_t *ep, const uint8_t *body, size_t len);
void ib_ring_begun(ib_ep_t *ep);
/* Writes the tail of a ring's slot (its last bytes, with the serial) behind a
 * message of `len` bytes; `image` has room for IB_TAIL_ROOM more bytes. Returns
 * the length of message and tail. */
size_t ib_ring_seal(const ib_ep_t *ep, uint8_t *image, size_t len);
/* Sets the remote address of an RDMA write such that the last byte that it
 * writes is the last byte of the next slot of the peer's ring. */
void ib_ring_aim(const ib_ep_t *ep, ib_post_t *post);
/* Returns the next message in the endpoint's ring and its length, or NULL if
 * that message has not arrived. */
const uint8_t *ib_ring_next(ib_ep_t *ep, size_t *len_p);

/* ---- recover.c ---- */

bool ib_bulk_usable(const ib_ep_t *ep);
/* Starts the recovery of the bulk queue, which carries puts and gets and is
 * broken on this side or at the peer. */
void ib_recover_start(ib_ep_t *ep);
/* Keeps a put or get that was flushed, to post it again after the recovery. */
void ib_recover_keep(ib_ep_t *ep, const ib_post_t *post);
void ib_recover_arrived(ib_ep_t *ep, const uint8_t *body, size_t len);
/* Called by progress: continues the recovery of the bulk queues. */
void ib_recover_poll(ib_iface_t *iface);
