/* A worker: the interfaces, connections, matching state and queues that one
 * lock guards. */
#ifndef PSCOMPY_CORE_TYPES_WORKER_H
#define PSCOMPY_CORE_TYPES_WORKER_H

#include <stdatomic.h>

#include "../control.h"
#include "../counters.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/lock.h"
#include "completions.h"
#include "request.h"
#include "sleeper.h"

#define PSC_IFACES_MAX 16
#define PSC_CONTEXT_BUCKETS 16
#define PSC_HANDLER_BUCKETS 16
#define PSC_REQ_CHUNK 64u
/* Number of size classes of active messages whose memory is kept for reuse */
#define PSC_AM_CLASSES 8

typedef struct psc_iface_slot {
    psc_worker_t *worker;
    psc_iface_t *iface;
    const psc_transport_ops_t *ops;
    psc_iface_attr_t attr;
    unsigned every; /* polled on every n-th pass; a power of two */
    uint32_t lanes; /* number of lanes */
} psc_iface_slot_t;

typedef struct psc_thread psc_thread_t;
typedef struct psc_upward psc_upward_t; /* defined in upward.h */

struct psc_worker {
    psc_lock_t lock;
    const psc_upward_t *up; /* the protocols */
    psc_worker_config_t config;
    atomic_bool forked;
    uint32_t pass; /* counts progress passes */
    bool ending; /* doomed, retiring or revoking is not empty */
    atomic_uint stride; /* passes between two clock reads; see spin.c */
    /* True if the last pass made progress or work was queued since: more may be
     * pending although no descriptor is readable. */
    bool restless;
    psc_iface_slot_t ifaces[PSC_IFACES_MAX];
    int n_ifaces;
    int control_fd; /* readable while the control thread has events to read */
    int log_fd, log_level;
    uint64_t log_lost; /* lines dropped because the log pipe was full */
    psc_wait_state_t wait;
    psc_thread_t *thread; /* the progress thread, or NULL */

    uint32_t n_up; /* connections that are up */
    /* Eager bytes that each connection may have in flight; raised to
     * PSC_CREDIT_INITIAL if less. */
    uint64_t window;
    psc_list_t conns; /* all connections except those in doomed */
    psc_list_t doomed; /* destroyed connections; freed when unused */
    psc_list_t busy; /* connections with queued work */
    psc_list_t retiring; /* lanes waiting for ep_fini */
    psc_list_t revoking; /* failed requests that a peer may still write to */
    uint32_t n_holding; /* interfaces that hold sent messages back */
    bool holding_told; /* the control thread was notified of n_holding */
    /* lanes and connections with changes for Python to read */
    psc_list_t lane_events, conn_events;

    psc_req_t **chunks;
    uint32_t n_chunks, n_reqs;
    psc_list_t free_reqs;
    psc_completions_t completions;
    psc_list_t messages;
    /* Announced active messages that wait for room; see proto/am.c. */
    psc_list_t offers;
    atomic_uint n_messages;

    psc_list_t contexts[PSC_CONTEXT_BUCKETS];
    psc_list_t probes;
    uint64_t match_clock; /* orders receives and arrivals */
    uint8_t secret[PSC_SECRET_SIZE]; /* authenticates remote keys */
    /* Bytes of unexpected eager payload and of active messages that have not
     * been polled. */
    uint64_t unexpected;
    uint64_t unpolled; /* the active messages' part of unexpected */
    psc_list_t handlers[PSC_HANDLER_BUCKETS];
    psc_list_t regions;
    uint64_t next_region;
    /* 1: other threads have put something into inbox or returned, or want all
     * waiting threads to look. */
    atomic_uint mail;
    /* messages of am_post from other threads */
    _Atomic(struct am_node *) inbox;
    _Atomic(struct psc_loan *) returned; /* views that were released */
    struct psc_pool *pool;
    struct am_node *idle[PSC_AM_CLASSES]; /* memory of released messages */
    size_t idle_bytes;

    psc_counters_t counters;
    psc_counters_t nobodys; /* counts of connections that are not up yet */
};

/* Interfaces of a worker, as bits. A struct, so that a bool is not accepted by
 * mistake. */
typedef struct psc_ifaces {
    uint32_t bits;
} psc_ifaces_t;

#endif
