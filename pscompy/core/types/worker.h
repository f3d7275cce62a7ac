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
/* Sizes of active messages that are kept for reuse */
#define PSC_AM_CLASSES 8

typedef struct psc_iface_slot {
    psc_worker_t *worker;
    psc_iface_t *iface;
    const psc_transport_ops_t *ops;
    psc_iface_attr_t attr;
    unsigned every; /* polled on every n-th pass; a power of two */
    uint32_t lanes; /* that exist */
} psc_iface_slot_t;

typedef struct psc_thread psc_thread_t;
typedef struct psc_upward psc_upward_t; /* upward.h */

struct psc_worker {
    psc_lock_t lock;
    const psc_upward_t *up; /* the protocols */
    psc_worker_config_t config;
    atomic_bool forked;
    uint32_t pass; /* counts progress passes */
    bool ending; /* doomed, retiring or revoking is not empty */
    atomic_uint stride; /* passes in a few microseconds; see spin.c */
    bool restless; /* something has moved since the last pass that found
                      nothing: there may be more, without any event */
    psc_iface_slot_t ifaces[PSC_IFACES_MAX];
    int n_ifaces;
    int control_fd; /* readable while the control thread has events to read */
    int log_fd, log_level;
    uint64_t log_lost;   /* lines that the pipe had no room for */
    psc_wait_state_t wait;
    psc_thread_t *thread; /* that drives it besides the program, or NULL */

    uint32_t n_up;        /* connections */
    uint64_t window;      /* eager bytes that each of them may have in flight,
                             if it is not less than proto/credit.h grants */
    psc_list_t conns;     /* all but those in doomed */
    psc_list_t doomed;    /* destroyed; freed as soon as nothing needs them */
    psc_list_t busy;      /* those with queued work */
    psc_list_t retiring;  /* lanes on their way to ep_fini */
    psc_list_t revoking;  /* failed requests that a peer may still write to */
    uint32_t n_holding;   /* interfaces that hold what was sent */
    bool holding_told;    /* to the control thread, which looks after it */
    psc_list_t lane_events, conn_events; /* those with news for Python */

    psc_req_t **chunks;
    uint32_t n_chunks, n_reqs;
    psc_list_t free_reqs;
    psc_completions_t completions;
    psc_list_t messages;
    psc_list_t offers;       /* active messages that are announced and wait
                                until there is room for them; see proto/am.c */
    atomic_uint n_messages;

    psc_list_t contexts[PSC_CONTEXT_BUCKETS];
    psc_list_t probes;
    uint64_t match_clock;    /* orders receives and arrivals */
    uint8_t secret[PSC_SECRET_SIZE]; /* remote keys are authenticated by it */
    uint64_t unexpected;     /* bytes of unexpected eager payload, and of
                                active messages that nobody has polled */
    uint64_t unpolled;       /* of these, active messages' */
    psc_list_t handlers[PSC_HANDLER_BUCKETS];
    psc_list_t regions;
    uint64_t next_region;
    atomic_uint mail; /* 1: others have left something in inbox or returned,
                         or want all who wait to look */
    _Atomic(struct am_node *) inbox; /* am_post from elsewhere */
    _Atomic(struct psc_loan *) returned; /* views that have died */
    struct psc_pool *pool;
    struct am_node *idle[PSC_AM_CLASSES]; /* memory of messages that are gone */
    size_t idle_bytes;

    psc_counters_t counters;
    psc_counters_t nobodys; /* where connections count before they are up */
};

/* Interfaces of a worker, as bits; a structure, so that no truth value passes
 * for one. */
typedef struct psc_ifaces {
    uint32_t bits;
} psc_ifaces_t;

#endif
