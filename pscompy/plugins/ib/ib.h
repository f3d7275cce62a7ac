/* What the files of this transport share: the interface, its endpoints, and
 * the bytes of a message.
 *
 *   transport.c  the operations table; opening, polling, shutting down
 *   settings.c   the settings of PSP_IB_*
 *   sleep.c      descriptors that wake us, the clock of the endpoints
 *   ep.c         endpoints: creating, addresses, closing
 *   meet.c       the stages in which two endpoints come to trust each other
 *   am.c         messages on their way out
 *   receive.c    completions, and messages that come in
 *   ring.c       messages that a busy peer writes where we look for them
 *   mem.c        registration, put and get
 *   cache.h      registrations that are kept
 *   mend.c       the queue of puts and gets after one was refused
 *   driver.h     verbs, and nothing of the above
 *
 * An endpoint has two queues. Messages go through one; a message lands in a
 * buffer of the receive queue that all endpoints share or, of a busy peer, in
 * its ring, and a peer may have RECVQ_SIZE of them under way before it hears
 * that they were taken. Puts and gets go through the other queue, so a message
 * does not stand in line behind bulk data. */
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

#define IB_RESERVE                                                             \
    4u   /* requests kept for what must not wait: credits,                     \
            greetings, the goodbye, the marker of the end */
#define IB_BUCKETS 256u
#define IB_QUIET_POLLS 4096u /* passes between two looks at the clock */

typedef struct ib_iface ib_iface_t;
typedef struct ib_ep ib_ep_t;

/* ---- settings ---- */

typedef struct ib_settings {
    ib_choice_t choice; /* hca: valid during open only */
    ib_path_t path;
    int64_t connect_ns, keepalive_ns;
    size_t buffer_size;
    uint32_t window;    /* RECVQ_SIZE */
    uint32_t sendq, send_buffers;
    uint32_t pending;
    uint32_t busy;  /* messages of a peer that gets a ring */
    uint32_t rings; /* at most */
    uint64_t ring_slots; /* of all rings together, at most */
    uint32_t cache_regions;
    uint64_t cache_bytes;
    bool fallbacks; /* to messages, where memory cannot be registered */
} ib_settings_t;

/* ---- the interface ---- */

typedef enum ib_notice {
    IB_NOTICE_NONE,
    IB_NOTICE_ERRORS, /* only failures */
    IB_NOTICE_ALL
} ib_notice_t;

/* A completion that arm found. */
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
    ib_queue_t *queues[IB_BUCKETS]; /* by number */
    psc_parties_t parties;
    psc_list_t eps;
    psc_list_t graveyard;
    psc_list_t owing;     /* endpoints that owe their peers a credit */
    psc_list_t mending;   /* endpoints with a bulk queue to be mended */
    psc_list_t ringing;   /* endpoints with a ring that is in use */
    uint32_t n_rings;
    uint32_t n_starving;  /* endpoints without room, and operations under
                             way: their completions must wake us */
    unsigned handled;     /* events of this progress */
    unsigned polls;
    bool in_progress;
    bool armed;
    bool drained;         /* the last pass left no arrival behind */
    ib_notice_t notices[2]; /* what makes an event: receiving, sending */
    struct ibv_wc early;  /* found by arm, for the next progress */
    ib_early_t early_kind;
    int epoll;
};

/* ---- endpoints ---- */

/* How messages leave. */
typedef enum ib_way {
    IB_WAY_QUEUE,   /* for the peer's shared receive queue */
    IB_WAY_OFFERED, /* the same; the peer has a ring for us */
    IB_WAY_RING     /* into that ring */
} ib_way_t;

/* What ep_address gives away. */
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
    uint64_t slots; /* the peer's ring for us */
    uint32_t slots_rkey;
    ib_pool_t ring; /* ours for the peer; no base: none */
    uint32_t epoch, peer_epoch; /* how often each bulk queue was mended */
    ib_post_t *parked; /* puts and gets that came back undone */
    uint32_t n_parked;
    bool starving;  /* counted in n_starving */
    bool dead;      /* fini was called */
    bool asked;     /* whether it is alive; no answer yet */
    ib_address_t peer;
};

/* ---- a message ---- */

typedef enum ib_kind {
    IB_KIND_AM = PSC_N_PROOF_KINDS, /* below: the token proof */
    IB_KIND_CREDIT,    /* nothing but the head */
    IB_KIND_OFFER,     /* a ring for the peer's messages */
    IB_KIND_SWITCH,    /* the next message comes by the ring */
    IB_KIND_MEND,      /* the bulk queue is ready; its epoch (4 bytes) */
    IB_KIND_GOODBYE    /* nothing follows */
} ib_kind_t;

/* Then header_len bytes of header, then the payload. */
typedef struct ib_head {
    uint8_t kind, id, header_len, reserved;
    uint32_t taken; /* messages of the other side, since the start */
} ib_head_t;

#define IB_HEAD_SIZE sizeof(ib_head_t)
#define IB_TAIL_ROOM 15u /* what a slot of a ring needs besides the message */

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
/* Free the endpoints that are finished. */
void ib_iface_bury(ib_iface_t *iface);

/* ---- settings.c ---- */

psc_status_t ib_settings_read(const psc_open_params_t *params,
                              ib_settings_t *settings_p);

/* The device has so many receive buffers: what a peer may send must fit in. */
void ib_settings_fit(ib_settings_t *settings, uint32_t recvs);

/* ---- sleep.c ---- */

psc_status_t ib_sleep_open(ib_iface_t *iface);
void ib_sleep_close(ib_iface_t *iface);
/* From progress: take back what woke us, and see what the clock says. */
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
/* False: this is no address. */
bool ib_address_unpack(const uint8_t *bytes, size_t len,
                       ib_address_t *address_p);
/* A look at the clock: who is late, who is to be asked whether it lives. */
void ib_ep_tick(ib_ep_t *ep, int64_t now);

/* ---- meet.c ---- */

psc_status_t ib_ep_connect(psc_ep_t *ep, const psc_connect_params_t *params);
/* Nobody answered the connector's hello. */
void ib_meet_again(ib_ep_t *ep);
void ib_meet_arrived(ib_ep_t *ep, uint8_t kind, const uint8_t *body,
                     size_t len);

/* ---- am.c ---- */

psc_status_t ib_am_short(psc_ep_t *ep, uint8_t id, const void *header,
                         uint8_t header_len, const void *payload, size_t len);
psc_status_t ib_am_bcopy(psc_ep_t *ep, uint8_t id, const void *header,
                         uint8_t header_len, const psc_iov_t *iov,
                         size_t n_iov);
/* A message of the transport's own, short enough to be copied inline. */
psc_status_t ib_control_send(ib_ep_t *ep, uint8_t kind, const void *body,
                             size_t len);
/* The endpoint found no room: its next completion wakes us. */
psc_status_t ib_ep_starve(ib_ep_t *ep);
void ib_ep_feed(ib_ep_t *ep);

/* ---- receive.c ---- */

void ib_receive_poll(ib_iface_t *iface);
void ib_complete_poll(ib_iface_t *iface);
void ib_credit_pay(ib_iface_t *iface);
/* A message is there, in a buffer or by the ring. */
void ib_arrived(ib_ep_t *ep, const uint8_t *bytes, size_t len, bool by_ring);
void ib_queue_enlist(ib_iface_t *iface, ib_queue_t *queue);
void ib_queue_strike(ib_iface_t *iface, ib_queue_t *queue);

/* ---- ring.c ---- */

/* For a peer that is busy, unless there are enough of them. */
void ib_ring_offer(ib_ep_t *ep);
/* When the peer cannot write any more. */
void ib_ring_close(ib_ep_t *ep);
void ib_ring_offered(ib_ep_t *ep, const uint8_t *body, size_t len);
void ib_ring_begun(ib_ep_t *ep);
/* From now on messages leave by the peer's ring. */
psc_status_t ib_ring_switch(ib_ep_t *ep);
/* Put the tail behind a message of len bytes, which has IB_TAIL_ROOM; the
 * length with it. */
size_t ib_ring_seal(const ib_ep_t *ep, uint8_t *image, size_t len);
/* To the end of the next slot. */
void ib_ring_aim(const ib_ep_t *ep, ib_post_t *post);
/* From progress. */
void ib_ring_poll(ib_iface_t *iface);

/* ---- mend.c ---- */

bool ib_mend_usable(const ib_ep_t *ep);
/* The bulk queue is broken, here or at the peer's. */
void ib_mend_start(ib_ep_t *ep);
/* It came back undone: to be posted again. */
void ib_mend_park(ib_ep_t *ep, const ib_post_t *post);
void ib_mend_arrived(ib_ep_t *ep, const uint8_t *body, size_t len);
/* From progress: go on mending. */
void ib_mend_poll(ib_iface_t *iface);

/* ---- mem.c ---- */

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
/* A request for this registration's window has ended. */
void ib_hold_told(ib_hold_t *hold, bool good);

#endif
