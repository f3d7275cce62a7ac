/* The declarations shared by the files of the transport loop, which connects a
 * process to itself.
 *
 *   transport.c  the operations table; opening, polling
 *   receive.c    messages out of slots
 *   send.c       messages into slots
 *   ep.c         endpoints: creating, connecting, failing, closing
 *   memory.c     registration, put and get
 *   sleep.c      the descriptor to sleep on
 *
 * A message is copied into a slot, and progress delivers the slot. The protocol
 * may hold the slot, which counts as in flight (`queued`) until the protocol
 * returns it. put and get are a memmove. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/operations.h"
#include "pscompy/transport/transport.h"

#define LOOP_IOV_MAX 64u
/* maximum number of messages that one call of progress delivers */
#define LOOP_DELIVER_MAX 64u
/* Maximum length of one put or get, in bytes. The worker's lock is held while
 * the bytes are copied. */
#define LOOP_RMA_MAX (1u << 20)
/* length of an endpoint's address: the interface's nonce, and the endpoint's
 * id, 8 bytes each */
#define LOOP_ADDRESS_SIZE 16u

typedef struct loop_ep loop_ep_t;

/* A copied message in flight. The protocol may hold the slot as a
 * psc_desc_t. */
typedef struct loop_slot {
    psc_link_t link; /* the list is `queue` or `spare` of the interface */
    loop_ep_t *to;
    uint8_t id, header_len;
    size_t len;
    uint64_t header[PSC_AM_HEADER_MAX / 8];
    uint8_t payload[];
} loop_slot_t;

/* A registered region. Its id combines its index in the table of regions and
 * the number of times that this index was used, so that the id of a
 * deregistered region never becomes valid again. */
struct psc_mem {
    uint64_t id;
    uint8_t *base;
    size_t len;
};

typedef struct loop_entry {
    /* the registered region; NULL if this entry of the table is free */
    psc_mem_t *mem;
    uint32_t uses;
    uint32_t next_free; /* index of the next free entry, if this one is free */
} loop_entry_t;

typedef struct loop_iface {
    psc_iface_t super;
    size_t buffer_size; /* maximum length of a message, header plus payload */
    /* maximum number of slots that are in use per receiving endpoint */
    uint32_t sendq_size;
    uint64_t nonce; /* random; identifies this interface's addresses and keys */
    uint64_t next_id;
    psc_list_t eps;
    psc_list_t queue; /* slots whose messages are to be delivered */
    psc_list_t spare; /* free slots */
    /* number of endpoints for which an upcall (`notice`) is still to be made */
    unsigned n_notices;
    int event_fd;
    /* armed: the core may sleep on event_fd; rung: event_fd is readable */
    bool armed, rung;
    loop_entry_t *entries;
    uint32_t n_entries;
    uint32_t free_place; /* index of a free entry; n_entries if there is none */
} loop_iface_t;

typedef enum loop_notice { LOOP_NOTHING, LOOP_IS_UP, LOOP_FAILS } loop_notice_t;

struct loop_ep {
    psc_ep_t super;
    psc_link_t link;
    uint64_t id;
    bool asked; /* ep_connect was called: `token` and `wanted` are set */
    bool closed;
    uint8_t token[PSC_TOKEN_SIZE];
    uint64_t wanted; /* id of the peer that ep_connect named */
    loop_ep_t *peer; /* the connected peer; NULL if not connected */
    uint32_t queued; /* number of slots that hold messages to this endpoint */
    /* number of slots whose messages to this endpoint are not delivered yet */
    uint32_t waiting;
    loop_notice_t notice;
    /* `status` and `reason` say why the endpoint fails; valid if notice is
     * LOOP_FAILS */
    psc_status_t status;
    const char *reason;
    /* ep_fini was called; the endpoint is freed with its last slot */
    bool finished;
};

static inline loop_iface_t *loop_ep_iface(const loop_ep_t *ep)
{
    return (loop_iface_t *)ep->super.iface;
}

PSC_OPERATIONS(loop);

/* Functions of transport.c. */
uintptr_t loop_transport(void);

/* Functions of receive.c. */
/* Called by progress: delivers queued messages, and returns their number. */
unsigned loop_iface_deliver(loop_iface_t *iface);

/* Functions of ep.c. */
/* Called by progress: makes the upcalls that endpoints have recorded in
 * `notice`, and returns their number. */
unsigned loop_iface_notify(loop_iface_t *iface);
/* Frees the endpoint if ep_fini was called and no slot refers to it. */
void loop_ep_free_if_idle(loop_ep_t *ep);

/* Functions of memory.c. */
/* Deregisters all regions of the interface that are still registered. */
void loop_mem_end(loop_iface_t *iface);

/* Functions of sleep.c. */
void loop_iface_wake(loop_iface_t *iface);
