/* What the files of this transport share: the interface, its endpoints, and
 * the bytes of a message.
 *
 *   transport.c  the operations table; opening, polling, shutting down
 *   settings.c   the settings of PSP_PORTALS_*
 *   sleep.c      descriptors that wake us, the clock of the endpoints
 *   ep.c         endpoints: creating, addresses, closing
 *   meet.c       the stages in which two endpoints come to trust each other
 *   am.c         messages on their way out, messages that come in, credits
 *   match.c      messages that the interface matches
 *   mem.c        registration, put and get
 *   psptl.h      the driver: Portals 4, and nothing of the above
 *
 * An endpoint is a channel of the driver. A peer may have RECVQ_SIZE messages
 * under way before it hears that they were taken. Every message tells how many
 * were; where none goes back, a credit of its own does, which is outside the
 * window: so is the goodbye. Of credits at most two can wait to be read, since
 * each answers half a window. The ring has room for these three, for the
 * message that is being read, and for two of the driver's own. */
#ifndef PSCOMPY_PORTALS_PORTALS_H
#define PSCOMPY_PORTALS_PORTALS_H

#include "psptl/psptl.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/endpoint.h"
#include "pscompy/transport/transport.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "what travels is copied from memory");

#define PORTALS_QUIET_POLLS 4096u /* passes between two looks at the clock */
#define PORTALS_GLANCE_NS 200000ll /* where there are no descriptors */
#define PORTALS_BULK_MAX ((size_t)1 << 30)

/* ---- settings ---- */

typedef struct portals_settings {
    psptl_settings_t driver;
    int64_t connect_ns, keepalive_ns;
} portals_settings_t;

/* ---- the interface ---- */

typedef struct portals_iface {
    psc_iface_t super;
    portals_settings_t settings;
    psptl_device_t *device;
    psc_parties_t parties;
    psc_list_t eps;
    psc_list_t graveyard;
    psc_list_t owing;      /* endpoints that owe their peers a credit */
    unsigned handled;      /* events of this progress */
    unsigned polls;
    bool in_progress;
    bool armed;
    int epoll, alarm;
    unsigned n_fds;        /* of the event queues */
    int64_t alarm_ns;      /* when the alarm rings; INT64_MAX: never */
} portals_iface_t;

/* ---- endpoints ---- */

/* What ep_address gives away. */
typedef struct portals_address {
    uint32_t magic;
    uint16_t version;
    uint16_t reserved;
    uint32_t window, buffer_size;
    psptl_place_t place;
} portals_address_t;

typedef struct portals_ep {
    psc_party_t party;
    psc_link_t link;  /* in the interface's eps, or the graveyard */
    psc_link_t owing; /* in the interface's owing */
    psptl_channel_t *channel;
    uint32_t window;         /* messages that the peer lets us have sent */
    uint32_t sent, taken;    /* messages; what the peer said it has taken */
    uint32_t received, told; /* messages; what the peer was told */
    bool parting;   /* ours is still to be sent */
    bool cut;       /* the channel works no more */
    bool dead;      /* fini was called */
    portals_address_t peer;
} portals_ep_t;

/* ---- a message ---- */

typedef enum portals_kind {
    PORTALS_KIND_AM = PSC_N_MEET_KINDS, /* below: how two ends meet */
    PORTALS_KIND_CREDIT,    /* nothing but the head */
    PORTALS_KIND_GOODBYE    /* nothing follows */
} portals_kind_t;

/* Then header_len bytes of header, then the payload. */
typedef struct portals_head {
    uint8_t kind, id, header_len, reserved;
    uint32_t taken; /* messages of the other side, since the start */
} portals_head_t;

#define PORTALS_HEAD_SIZE sizeof(portals_head_t)

static inline portals_iface_t *portals_iface(psc_iface_t *iface)
{
    return (portals_iface_t *)iface;
}

static inline portals_ep_t *portals_ep(psc_ep_t *ep)
{
    return (portals_ep_t *)ep;
}

static inline portals_iface_t *portals_ep_iface(const portals_ep_t *ep)
{
    return (portals_iface_t *)ep->party.super.iface;
}

/* ---- transport.c ---- */

uintptr_t portals_transport(void);
int portals_has_library(void);
/* Free the endpoints that ended during progress. */
void portals_iface_bury(portals_iface_t *iface);

/* ---- settings.c ---- */

psc_status_t portals_settings_read(const psc_open_params_t *params,
                                   portals_settings_t *settings_p);

/* ---- sleep.c ---- */

psc_status_t portals_sleep_open(portals_iface_t *iface);
void portals_sleep_close(portals_iface_t *iface);
/* From progress: take back what woke us, and see what the clock says. */
void portals_sleep_look(portals_iface_t *iface);
/* Set the alarm to when something is to be sent again, or looked at. */
void portals_sleep_until(portals_iface_t *iface);
int portals_event_fd(psc_iface_t *iface);
psc_status_t portals_arm(psc_iface_t *iface);

/* ---- ep.c ---- */

psc_status_t portals_ep_create(psc_iface_t *iface, void *user, psc_ep_t **ep_p);
psc_status_t portals_ep_address(psc_ep_t *ep, uint8_t *address, size_t *len_p);
void portals_ep_close(psc_ep_t *ep);
psc_status_t portals_ep_stop(psc_ep_t *ep);
void portals_ep_fini(psc_ep_t *ep);
uint32_t portals_ep_counters(const psc_ep_t *ep, psc_counted_t *counters,
                             uint32_t room);
/* False: this is no address. */
bool portals_address_unpack(const uint8_t *bytes, size_t len,
                            portals_address_t *address_p);
/* A look at the clock: who is late, who is to be asked whether it lives. */
void portals_ep_tick(portals_ep_t *ep, int64_t now);

/* ---- meet.c ---- */

psc_status_t portals_ep_connect(psc_ep_t *ep,
                                const psc_connect_params_t *params);
void portals_meet_arrived(portals_ep_t *ep, uint8_t kind, const uint8_t *body,
                          size_t len);

/* ---- am.c ---- */

psc_status_t portals_am_short(psc_ep_t *ep, uint8_t id, const void *header,
                              uint8_t header_len, const void *payload,
                              size_t len);
psc_status_t portals_am_bcopy(psc_ep_t *ep, uint8_t id, const void *header,
                              uint8_t header_len, const psc_iov_t *iov,
                              size_t n_iov);
/* A message of the transport's own. */
psc_status_t portals_control_send(portals_ep_t *ep, uint8_t kind,
                                  const void *body, size_t len);
void portals_arrived(void *owner, const uint8_t *bytes, size_t len);
/* May a message of this length leave? */
psc_status_t portals_am_may(portals_ep_t *ep, size_t len);
/* A message that the peer counts has come. */
void portals_count_arrival(portals_ep_t *ep);
/* The peer says how many it has taken; false: that cannot be. */
bool portals_credit_take(portals_ep_t *ep, uint32_t taken);
void portals_credit_pay(portals_iface_t *iface);

/* ---- match.c ---- */

psc_status_t portals_tag_ready(psc_ep_t *ep, char *reason);
psc_status_t portals_tag_post(psc_ep_t *ep, psc_tag_recv_t *recv);
psc_status_t portals_tag_cancel(psc_ep_t *ep, psc_tag_recv_t *recv);
psc_status_t portals_tag_put(psc_ep_t *ep, uint64_t bits, const void *buffer,
                             size_t len, uint32_t *number_p, psc_comp_t *comp);
psc_status_t portals_tag_send(psc_ep_t *ep, uint64_t bits,
                              const psc_iov_t *iov, size_t n_iov);
void portals_tagged(void *owner, void *cookie, const psptl_tagged_t *message,
                    psptl_verdict_t verdict);

/* ---- mem.c ---- */

psc_status_t portals_put(psc_ep_t *ep, const void *buffer, size_t len,
                         psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                         psc_comp_t *comp);
psc_status_t portals_get(psc_ep_t *ep, void *buffer, size_t len,
                         psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                         psc_comp_t *comp);
psc_status_t portals_mem_register(psc_iface_t *iface, psc_ep_t *ep, void *base,
                                  size_t len, psc_mem_t **mem_p);
psc_status_t portals_mem_revoke(psc_iface_t *iface, psc_mem_t *mem);
void portals_mem_deregister(psc_iface_t *iface, psc_mem_t *mem);
psc_status_t portals_rkey_pack(psc_iface_t *iface, psc_mem_t *mem,
                               uint8_t *packed, size_t *len_p);
psc_status_t portals_rkey_unpack(psc_ep_t *ep, const uint8_t *packed,
                                 size_t len, psc_rkey_t **rkey_p);
void portals_rkey_release(psc_ep_t *ep, psc_rkey_t *rkey);
psc_status_t portals_status_of(psptl_verdict_t verdict);
void portals_bulk_done(void *cookie, psptl_verdict_t verdict);

#endif
