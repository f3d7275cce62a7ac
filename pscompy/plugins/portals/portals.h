/* Declarations that the files of this transport share: its interface, its
 * endpoints, and the format of their addresses.
 *
 *   transport.c  the operations table; opening, polling, closing
 *   settings.c   PSP_PORTALS_*
 *   sleep.c      descriptors to sleep on, and the clock of the endpoints
 *   ep.c         endpoints: creating, addresses, closing
 *   connect.c    connecting, and the proof of the token
 *   send.c       active messages, and credits
 *   receive.c    messages of the peer
 *   match.c      messages that the interface matches
 *   memory.c     registration, put and get
 *   psptl/       the driver: channels over Portals 4
 *   softni/      a library of Portals 4 in software
 *
 * An endpoint is a channel of the driver. A peer may have RECVQ_SIZE messages
 * in flight that this side has not reported as taken (received). Every message
 * carries the number of messages that its sender has taken; if there is no
 * other message to send, a credit message carries it. RECVQ_SIZE does not count
 * credit messages and the goodbye (the last message). At most two credit
 * messages can be unread, because each reports half of RECVQ_SIZE. So the
 * receive ring has six more buffers: for two credit messages, the goodbye, the
 * message that is being read, and a fence of the driver and its answer
 * (psptl/match.h). */
#pragma once

#include "psptl/psptl.h"
#include "pscompy/transport/kit/endpoint_messages.h"
#include "pscompy/transport/kit/operations.h"
#include "pscompy/transport/transport.h"

_Static_assert(PSPTL_REASON_MAX <= PSC_REASON_MAX, "the same buffers");

/* calls of portals_progress between two reads of the endpoints' timer */
#define PORTALS_QUIET_POLLS 4096u
/* nanoseconds between two polls of a Portals library that has no file
 * descriptors to sleep on */
#define PORTALS_POLL_NS 200000ll
#define PORTALS_BULK_MAX ((size_t)1 << 30)

/* ---- settings ---- */

#define PORTALS_NAME_MAX 64 /* size of the name of an interface, in bytes */

typedef struct portals_settings {
    psptl_settings_t driver;
    /* name of the network interface that this path uses */
    char interface[PORTALS_NAME_MAX];
    /* `path`: index of this path; `paths`: number of paths, one for each
     * interface in PSP_PORTALS_INTERFACE */
    unsigned path, paths;
    int64_t connect_ns, keepalive_ns, rail_ns;
} portals_settings_t;

/* ---- the interface ---- */

typedef struct portals_iface {
    psc_iface_t super;
    portals_settings_t settings;
    psptl_device_t *device;
    psc_kit_eps_t eps;
    /* events handled in the current call of portals_progress */
    unsigned handled;
    unsigned polls;
    bool in_progress;
    bool armed;
    int epoll, alarm;
    /* number of event queues with a file descriptor; 0 if the Portals library
     * offers no descriptors */
    unsigned n_fds;
    /* time at which the timer `alarm` expires; INT64_MAX: the timer is off */
    int64_t alarm_ns;
} portals_iface_t;

/* ---- endpoints ---- */

/* The address of an endpoint, as portals_ep_address packs it. */
typedef struct portals_address {
    uint32_t magic;
    uint16_t version;
    uint16_t reserved;
    uint32_t window, buffer_size;
    psptl_address_t driver;
} portals_address_t;

typedef struct portals_ep {
    psc_kit_ep_t kit;
    psptl_channel_t *channel;
    /* the goodbye, the last message to the peer, is still to be sent */
    bool parting;
    bool cut; /* the driver has reported that the channel failed */
    portals_address_t peer;
} portals_ep_t;

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
    return (portals_iface_t *)ep->kit.super.iface;
}

PSC_OPERATIONS(portals);

/* ---- transport.c ---- */

uintptr_t portals_transport(void);
int portals_has_library(void);
void portals_software_at(const char *path);

/* ---- settings.c ---- */

psc_status_t portals_settings_read(const psc_open_params_t *params,
                                   portals_settings_t *settings_p);

/* ---- sleep.c ---- */

psc_status_t portals_sleep_open(portals_iface_t *iface);
void portals_sleep_close(portals_iface_t *iface);
/* Called by portals_progress: resets `alarm` if it has expired. If the
 * endpoints' timer has expired, fails endpoints that have not connected in
 * time, and pings silent peers. */
void portals_sleep_look(portals_iface_t *iface);
/* Sets `alarm` to the time at which portals_progress has work to do even
 * without an event, such as a resend. */
void portals_sleep_until(portals_iface_t *iface);

/* ---- ep.c ---- */

/* Returns false if the bytes are not a valid address. */
bool portals_address_unpack(const uint8_t *bytes, size_t len,
                            portals_address_t *address_p);
void portals_ep_free(psc_kit_ep_t *kit);

/* ---- send.c ---- */

/* Sends a control message of this `kind`, such as a credit message (see the
 * head of this file). `kit` is the member `kit` of a portals_ep_t. */
psc_status_t portals_control_send(psc_kit_ep_t *kit, uint8_t kind,
                                  const void *body, size_t len);
/* Returns PSC_OK if a message of `len` bytes may be sent now. */
psc_status_t portals_am_may(portals_ep_t *ep, size_t len);
/* Handles the peer's report that it has taken `taken` of this endpoint's
 * messages (see the head of this file). Returns false if `taken` is more than
 * were sent. */
bool portals_credit_take(portals_ep_t *ep, uint32_t taken);

/* ---- receive.c ---- */

void portals_arrived(void *owner, const uint8_t *bytes, size_t len);

/* ---- match.c ---- */

void portals_tagged(void *owner, void *cookie, const psptl_tagged_t *message,
                    psptl_verdict_t verdict);

/* ---- memory.c ---- */

psc_status_t portals_status_of(psptl_verdict_t verdict);
void portals_bulk_done(void *owner, void *cookie, psptl_verdict_t verdict);
