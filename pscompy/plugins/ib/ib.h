/* The declarations that this transport's files share: the interface, its
 * endpoints, and the format of a message.
 *
 *   transport.c  the operations table; opening, polling, shutting down
 *   settings.c   the settings of PSP_IB_*
 *   sleep.c      descriptors that wake us, the clock of the endpoints
 *   ep.c         endpoints: creating, addresses, closing
 *   connect.c    connecting the queue pairs and proving the token
 *   send.c       sending messages
 *   receive.c    completions, and messages that arrive
 *   ring.c       rings: slots into which a busy peer writes its messages
 *   memory.c     registration, put and get
 *   cache.h      registrations that are kept
 *   recover.c    recovery of the bulk queue after a put or get was refused
 *   driver.h     verbs, independent of the files above
 *
 * An endpoint has two queues. The first carries messages. A message arrives in
 * a buffer of the shared receive queue or, if the peer is busy, in the peer's
 * ring. A peer may have RECVQ_SIZE messages in flight before their receipt is
 * reported. The second queue ("bulk") carries puts and gets, so that a message
 * does not wait behind bulk data. */
#ifndef PSCOMPY_IB_IB_H
#define PSCOMPY_IB_IB_H

#include "cache.h"
#include "driver.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/credit.h"
#include "pscompy/transport/kit/endpoint.h"
#include "pscompy/transport/transport.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "what travels is copied from memory");

/* Requests reserved for control messages: credits, greetings, the goodbye, and
 * the marker of the end. */
#define IB_RESERVE 4u
#define IB_BUCKETS 256u
#define IB_QUIET_POLLS 4096u /* passes between two polls of the clock */

typedef struct ib_iface ib_iface_t;
typedef struct ib_ep ib_ep_t;

/* ---- settings ---- */

typedef struct ib_settings {
    ib_choice_t choice; /* hca is valid during open only */
    ib_path_t path;
    int64_t connect_ns, keepalive_ns;
    size_t buffer_size;
    uint32_t window;    /* RECVQ_SIZE as a power of two */
    uint32_t sendq, send_buffers;
    uint32_t pending;
    uint32_t busy;  /* a peer receives a ring after this many messages */
    uint32_t rings; /* upper bound of rings */
    uint64_t ring_slots; /* upper bound of the slots of all rings together */
    uint32_t cache_regions;
    uint64_t cache_bytes;
    bool fallbacks; /* use messages if memory cannot be registered */
} ib_settings_t;

/* ---- the interface ---- */

typedef enum ib_notice {
    IB_NOTICE_NONE,
    IB_NOTICE_ERRORS, /* an event for failed completions only */
    IB_NOTICE_ALL
} ib_notice_t;

/* Kind of a completion that ib_arm() took from a queue. */
typedef enum ib_early {
    IB_EARLY_NONE,
    IB_EARLY_RECEIVED,
    IB_EARLY_SENT
} ib_early_t;

struct ib_iface {
    psc_iface_t super;
    ib_settings_t settings;
    ib_device_t device;
    ib_pool_t recvs, sends;
    ib_cache_t cache;
    ib_queue_t *queues[IB_BUCKETS]; /* hash table by queue pair number */
    psc_parties_t parties;
    psc_list_t eps;
    psc_list_t graveyard;
    /* endpoints that must report credits to their peers */
    psc_list_t owing;
    psc_list_t mending;   /* endpoints whose bulk queue is recovering */
    psc_list_t ringing;   /* endpoints whose ring is in use */
    uint32_t n_rings;
    /* Endpoints without room to send, plus operations in flight: while there
     * are any, send completions must wake us. */
    uint32_t n_starving;
    unsigned handled;     /* events handled in this call of progress */
    unsigned polls;
    bool in_progress;
    bool armed;
    bool drained;         /* The last pass has taken all arrivals. */
    /* completions that raise an event: receiving, sending */
    ib_notice_t notices[2];
    /* completion found by ib_arm(), processed by the next progress */
    struct ibv_wc early;
    ib_early_t early_kind;
    int epoll;
};

/* ---- endpoints ---- */

/* The path that an endpoint's messages take. */
typedef enum ib_way {
    IB_WAY_QUEUE,   /* to the peer's shared receive queue */
    IB_WAY_OFFERED, /* the same, but the peer has offered a ring */
    IB_WAY_RING     /* into the peer's ring */
} ib_way_t;

/* Format of the address that ep_address returns. */
typedef struct ib_address {
    uint32_t magic;
    uint16_t version;
    uint16_t ethernet;
    uint32_t window, buffer_size;
    ib_place_t messages, bulk;
} ib_address_t;

struct ib_ep {
    psc_party_t party;
    psc_link_t link;  /* in the interface's eps, or the graveyard */
    psc_link_t owing; /* in the interface's owing */
    psc_link_t mending; /* in the interface's mending */
    psc_link_t ringing; /* in the interface's ringing */
    ib_queue_t messages, bulk;
    psc_credit_t credit;
    ib_way_t way;
    uint64_t slots; /* remote address of the ring that the peer has offered */
    uint32_t slots_rkey;
    ib_pool_t ring; /* our ring for the peer; `base` is NULL if there is none */
    /* how often each side's bulk queue was reconnected */
    uint32_t epoch, peer_epoch;
    ib_post_t *parked; /* puts and gets that were flushed, to be posted again */
    uint32_t n_parked;
    bool starving; /* counted in n_starving */
    bool dead; /* ep_fini was called */
    bool asked; /* a keepalive write is in flight */
    ib_address_t peer;
};

/* ---- a message ---- */

typedef enum ib_kind {
    IB_KIND_AM = PSC_N_PROOF_KINDS, /* smaller kinds are the token proof's */
    IB_KIND_CREDIT, /* the head only */
    IB_KIND_OFFER, /* a ring for the peer's messages */
    IB_KIND_SWITCH, /* the next message is written into the ring */
    /* the bulk queue was reconnected; body: its epoch (4 bytes) */
    IB_KIND_MEND,
    IB_KIND_GOODBYE /* the last message */
} ib_kind_t;

/* Head of a message. header_len bytes of header follow, then the payload. */
typedef struct ib_head {
    uint8_t kind, id, header_len, reserved;
    /* messages received by the sender of this head since the start */
    uint32_t taken;
} ib_head_t;

#define IB_HEAD_SIZE sizeof(ib_head_t)
/* bytes of a slot besides the message: tail and alignment */
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
    return (ib_iface_t *)ep->party.super.iface;
}

/* ---- transport.c ---- */

uintptr_t ib_transport(void);
/* Free the endpoints in the graveyard. */
void ib_iface_bury(ib_iface_t *iface);

/* ---- settings.c ---- */

psc_status_t ib_settings_read(const psc_open_params_t *params,
                              ib_settings_t *settings_p);

/* Reduces the window and the number of rings to what fits into `recvs` receive
 * buffers. */
void ib_settings_fit(ib_settings_t *settings, uint32_t recvs);

/* ---- sleep.c ---- */

psc_status_t ib_sleep_open(ib_iface_t *iface);
void ib_sleep_close(ib_iface_t *iface);
/* Called by progress: handles the events of the descriptor, and the clock. */
void ib_sleep_look(ib_iface_t *iface);
int ib_event_fd(psc_iface_t *iface);
psc_status_t ib_arm(psc_iface_t *iface);

/* ---- ep.c ---- */

psc_status_t ib_ep_create(psc_iface_t *iface, void *user, psc_ep_t **ep_p);
psc_status_t ib_ep_address(psc_ep_t *ep, uint8_t *address, size_t *len_p);
void ib_ep_close(psc_ep_t *ep);
psc_status_t ib_ep_stop(psc_ep_t *ep);
void ib_ep_fini(psc_ep_t *ep);
void ib_ep_free(ib_ep_t *ep);
/* Returns false if the bytes are not a valid address. */
bool ib_address_unpack(const uint8_t *bytes, size_t len,
                       ib_address_t *address_p);
/* Called by the clock: checks the deadline of connecting, and sends a keepalive
 * to a silent peer. */
void ib_ep_tick(ib_ep_t *ep, int64_t now);

/* ---- connect.c ---- */

psc_status_t ib_ep_connect(psc_ep_t *ep, const psc_connect_params_t *params);
/* Dials again after the connector's hello was not acknowledged. */
void ib_meet_again(ib_ep_t *ep);
void ib_meet_arrived(ib_ep_t *ep, uint8_t kind, const uint8_t *body,
                     size_t len);

/* ---- send.c ---- */

psc_status_t ib_am_short(psc_ep_t *ep, uint8_t id, const void *header,
                         uint8_t header_len, const void *payload, size_t len);
psc_status_t ib_am_bcopy(psc_ep_t *ep, uint8_t id, const void *header,
                         uint8_t header_len, const psc_iov_t *iov,
                         size_t n_iov);
/* Sends a control message, which is short enough to be copied inline. */
psc_status_t ib_control_send(ib_ep_t *ep, uint8_t kind, const void *body,
                             size_t len);
/* The endpoint found no room; its next completion must wake us. Always returns
 * PSC_ERR_NO_RESOURCE. */
psc_status_t ib_ep_starve(ib_ep_t *ep);
void ib_ep_feed(ib_ep_t *ep);

/* ---- receive.c ---- */

void ib_receive_poll(ib_iface_t *iface);
void ib_complete_poll(ib_iface_t *iface);
void ib_credit_pay(ib_iface_t *iface);
/* Handles a message that arrived in a receive buffer or in the ring. */
void ib_arrived(ib_ep_t *ep, const uint8_t *bytes, size_t len, bool by_ring);
void ib_queue_enlist(ib_iface_t *iface, ib_queue_t *queue);
void ib_queue_strike(ib_iface_t *iface, ib_queue_t *queue);

/* ---- ring.c ---- */

/* Offers a ring to a busy peer, unless the limit of rings is reached. */
void ib_ring_offer(ib_ep_t *ep);
/* Called after the queue pair is destroyed, so that the peer can no longer
 * write. */
void ib_ring_close(ib_ep_t *ep);
void ib_ring_offered(ib_ep_t *ep, const uint8_t *body, size_t len);
void ib_ring_begun(ib_ep_t *ep);
/* Tells the peer that later messages are written into the ring. */
psc_status_t ib_ring_switch(ib_ep_t *ep);
/* Writes the tail behind a message of `len` bytes, for which the image has
 * IB_TAIL_ROOM bytes left. Returns the length with the tail. */
size_t ib_ring_seal(const ib_ep_t *ep, uint8_t *image, size_t len);
/* Addresses the write so that it ends at the end of the next slot. */
void ib_ring_aim(const ib_ep_t *ep, ib_post_t *post);
/* Called by progress: delivers the messages in the rings. */
void ib_ring_poll(ib_iface_t *iface);

/* ---- recover.c ---- */

bool ib_mend_usable(const ib_ep_t *ep);
/* The bulk queue is broken on this side or at the peer: start its recovery. */
void ib_mend_start(ib_ep_t *ep);
/* Keeps a request that was flushed, to be posted again. */
void ib_mend_park(ib_ep_t *ep, const ib_post_t *post);
void ib_mend_arrived(ib_ep_t *ep, const uint8_t *body, size_t len);
/* Called by progress: continues the recovery of bulk queues. */
void ib_mend_poll(ib_iface_t *iface);

/* ---- memory.c ---- */

psc_status_t ib_put(psc_ep_t *ep, const void *buffer, size_t len,
                    psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                    psc_comp_t *comp);
psc_status_t ib_get(psc_ep_t *ep, void *buffer, size_t len, psc_mem_t *mem,
                    psc_rkey_t *rkey, uint64_t offset, psc_comp_t *comp);
psc_status_t ib_mem_register(psc_iface_t *iface, psc_ep_t *ep, void *base,
                             size_t len, psc_mem_t **mem_p);
void ib_mem_deregister(psc_iface_t *iface, psc_mem_t *mem);
psc_status_t ib_mem_revoke(psc_iface_t *iface, psc_mem_t *mem);
psc_status_t ib_rkey_pack(psc_iface_t *iface, psc_mem_t *mem, uint8_t *packed,
                          size_t *len_p);
psc_status_t ib_rkey_unpack(psc_ep_t *ep, const uint8_t *packed, size_t len,
                            psc_rkey_t **rkey_p);
void ib_rkey_release(psc_ep_t *ep, psc_rkey_t *rkey);
/* A bind request for this registration's window has completed. */
void ib_hold_told(ib_hold_t *hold, bool good);

#endif
