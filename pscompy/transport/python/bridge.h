/* The declarations that the files of the bridge share.
 *
 *   pump.c       the functions that the pump calls (pump.h)
 *   transport.c  the operations table; opening, polling, waking
 *   ep.c         endpoints, and sending on them
 *   queue.c      items, the two queues, and their end
 *   build.py     the extension; __init__.py and its neighbours: the pump
 *
 * A bridge is an interface (psc_iface_t of transport.h) whose fabric is a
 * thread that runs Python, the pump. Two queues lie between them: commands are
 * passed to the pump, events to `progress`. Items are allocated one by one;
 * both queues are bounded per endpoint, so a peer that does not receive delays
 * no other peer.
 *
 * There are two locks: the worker's, which the core holds when it calls, and
 * the bridge's, which protects all fields that both sides use. No upcall is
 * made with the bridge's lock held. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/lock.h"
#include "pscompy/transport/kit/operations.h"
#include "pscompy/transport/transport.h"
#include "pump.h"

#define BRIDGE_BUCKETS 64u
/* maximum number of events that one call of progress reports */
#define BRIDGE_EVENTS_MAX 32
/* bytes of an endpoint's number, with which its address begins */
#define BRIDGE_NUMBER_SIZE 8u
#define BRIDGE_IOV_MAX 16u

/* The head of a frame; an active message's header and payload follow. */
typedef struct bridge_head {
    uint8_t id;
    uint8_t header_len;
    uint8_t reserved[6]; /* zero; the header is aligned to 8 */
} bridge_head_t;

/* A command to the pump, or an event from it. */
typedef struct bridge_item {
    psc_link_t link;
    int kind; /* bridge_kind_t of a command, bridge_event_t of an event */
    uint64_t ep;
    uint64_t peer;
    int number; /* role (BRIDGE_CONNECT) or status (BRIDGE_FAILED) */
    uint8_t token[PSC_TOKEN_SIZE];
    size_t len;
    _Alignas(8) uint8_t data[];
} bridge_item_t;

typedef enum bridge_event {
    BRIDGE_UP,
    BRIDGE_FAILED, /* the endpoint has failed; `data` is the reason */
    BRIDGE_ARRIVED /* `data` is a frame that has arrived */
} bridge_event_t;

typedef struct bridge_ep {
    psc_ep_t super;
    psc_link_t link; /* in a bucket of the bridge's table `eps` */
    uint64_t number; /* random, so that a stranger cannot guess it */
    bool closed;     /* ep_close was called */
    /* bridge_ep_up() was called, so the pump may have frames to send */
    bool up;
    bool stopped; /* the pump has finished with the endpoint */
    psc_status_t failed; /* status that the pump has reported; PSC_OK before */
    /* The two events about the endpoint are reserved when it is created, so
     * that they reach it even if memory is short; NULL once they are queued. */
    bridge_item_t *up_event, *failed_event;
    bool starved; /* am_bcopy found the queue of frames to send full */
    bool held_up; /* bridge_deliver() found the queue of arrived frames full */
    uint32_t sending; /* frames that the pump has yet to send */
    /* frames that the pump has delivered, and that progress has yet to
     * report */
    uint32_t arrived;
} bridge_ep_t;

struct bridge {
    psc_iface_t super;
    psc_transport_ops_t ops;
    char name[16];
    bridge_attr_t attr;
    uint8_t address[PSC_ADDRESS_MAX];
    size_t address_len;
    atomic_uint references;
    psc_lock_t lock;
    psc_list_t eps[BRIDGE_BUCKETS];
    psc_list_t commands, events;
    bridge_item_t *taken; /* command that the pump is processing */
    int pump_fd, event_fd;
    atomic_bool busy; /* progress has something to do */
    bool armed; /* the next event must signal event_fd, to wake a sleeper */
    bool signalled; /* event_fd was written */
    bool ended; /* BRIDGE_END follows the last queued command */
};

PSC_OPERATIONS(bridge);

/* ---- transport.c ---- */

extern const psc_transport_ops_t bridge_template;

/* ---- queue.c, and bridge_release(), bridge_end() of pump.h ---- */

/* Returns a new item, or NULL if memory is short. `data` may be NULL if the
 * caller fills it in later. */
bridge_item_t *bridge_item_create(int kind, uint64_t ep, const void *data,
                                  size_t len);
/* Frees an endpoint with the events that were not queued. */
void bridge_ep_free(bridge_ep_t *ep);
/* Overwrites the token in an item with zeros, and frees the item. Does nothing
 * if `item` is NULL. */
void bridge_item_wipe(bridge_item_t *item);
/* Queues an item and wakes the other side. The bridge's lock must be held. */
void bridge_command_push(bridge_t *bridge, bridge_item_t *item);
void bridge_event_push(bridge_t *bridge, bridge_item_t *item);
/* Ensures that progress finds work, and wakes a thread that sleeps on event_fd.
 * The bridge's lock must be held. */
void bridge_wake(bridge_t *bridge);

/* ---- ep.c ---- */

/* Returns the endpoint with this number, or NULL if it was freed. The bridge's
 * lock must be held. */
bridge_ep_t *bridge_ep_find(bridge_t *bridge, uint64_t number);
