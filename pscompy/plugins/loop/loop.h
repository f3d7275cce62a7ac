/* The declarations that this transport's files share. It connects a process to
 * itself.
 *
 *   transport.c  the operations table; opening, polling
 *   receive.c    messages out of slots
 *   send.c       messages into slots
 *   ep.c         endpoints: creating, connecting, failing, closing
 *   memory.c     registration, put and get
 *   sleep.c      the descriptor to sleep on
 *
 * A message is copied into a slot, and progress delivers the slot. The protocol
 * may hold the slot; the receiving endpoint's credit is returned when the slot
 * is. put and get are a memmove. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/operations.h"
#include "pscompy/transport/transport.h"

#define LOOP_IOV_MAX 64u
#define LOOP_DELIVER_MAX 64u     /* most messages in one progress */
/* most bytes of one put or get, because it holds the worker's lock */
#define LOOP_RMA_MAX (1u << 20)
#define LOOP_ADDRESS_SIZE 16u /* interface's nonce 8, endpoint's id 8 */

typedef struct loop_ep loop_ep_t;

/* A copied message in flight; the protocol may hold it as a psc_desc_t. */
typedef struct loop_slot {
    psc_link_t link; /* in the interface's queue or its spare slots */
    loop_ep_t *to;
    uint8_t id, header_len;
    size_t len;
    uint64_t header[PSC_AM_HEADER_MAX / 8];
    uint8_t payload[];
} loop_slot_t;

/* A registered region. Its id holds its index in the table and how often that
 * entry was used, so that an id never becomes valid again. */
struct psc_mem {
    uint64_t id;
    uint8_t *base;
    size_t len;
};

typedef struct loop_place {
    psc_mem_t *mem; /* NULL if the entry is free */
    uint32_t uses;
} loop_place_t;

typedef struct loop_iface {
    psc_iface_t super;
    size_t buffer_size; /* longest header plus payload */
    uint32_t sendq_size; /* slots per receiving endpoint */
    uint64_t nonce; /* random; identifies this interface's addresses and keys */
    uint64_t next_id;
    psc_list_t eps;
    psc_list_t queue; /* slots to deliver */
    psc_list_t spare; /* slots for reuse */
    /* endpoints with a notice: an upcall still to be made */
    unsigned n_notices;
    int event_fd;
    /* armed: the core may sleep; rung: event_fd is readable */
    bool armed, rung;
    loop_place_t *places;
    uint32_t n_places;
} loop_iface_t;

typedef enum loop_notice { LOOP_NOTHING, LOOP_IS_UP, LOOP_FAILS } loop_notice_t;

struct loop_ep {
    psc_ep_t super;
    psc_link_t link;
    uint64_t id;
    bool asked; /* ep_connect was called: token and wanted are set */
    bool closed;
    uint8_t token[PSC_TOKEN_SIZE];
    uint64_t wanted; /* id of the peer that ep_connect named */
    loop_ep_t *peer; /* the connected peer; NULL before and after */
    uint32_t queued; /* slots in use, including those that the protocol holds */
    uint32_t waiting; /* `queued` slots that are not delivered yet */
    loop_notice_t notice;
    /* the failure, with `reason`; valid if notice is LOOP_FAILS */
    psc_status_t status;
    const char *reason;
    bool finished; /* fini was called; freed when the last slot is returned */
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
/* Called by progress: makes the upcalls that endpoints have noted, and returns
 * their number. */
unsigned loop_iface_notify(loop_iface_t *iface);
/* Frees the endpoint if it is finished and no slot refers to it. */
void loop_ep_free_if_idle(loop_ep_t *ep);

/* Functions of memory.c. */
/* Deregisters all remaining regions. */
void loop_mem_end(loop_iface_t *iface);

/* Functions of sleep.c. */
void loop_iface_wake(loop_iface_t *iface);
