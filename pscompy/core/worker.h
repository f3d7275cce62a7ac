/* A worker: the interfaces, connections, matching state and queues that one
 * lock guards. Private to the core. */
#ifndef PSCOMPY_CORE_WORKER_H
#define PSCOMPY_CORE_WORKER_H

#include <stdatomic.h>

#include "completion.h"
#include "control.h"
#include "counters.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/lock.h"
#include "request.h"
#include "progress/sleep.h"

#define PSC_IFACES_MAX 16
#define PSC_CONTEXT_BUCKETS 16
#define PSC_HANDLER_BUCKETS 16
#define PSC_REQ_CHUNK 64u
#define PSC_AM_CLASSES 8 /* sizes of active messages that are kept for reuse */

typedef struct psc_iface_slot {
    psc_worker_t *worker;
    psc_iface_t *iface;
    const psc_transport_ops_t *ops;
    psc_iface_attr_t attr;
    unsigned every; /* polled on every n-th pass; a power of two */
    uint32_t lanes; /* that exist */
} psc_iface_slot_t;

typedef struct psc_thread psc_thread_t;

struct psc_worker {
    psc_lock_t lock;
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
    psc_list_t doomed;    /* destroyed, and freed as soon as nothing needs them */
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

/* Take the lock, unless PSC_FLAG_TRY and it is held, or the process forked:
 * PSC_OK, PSC_ERR_NO_RESOURCE, PSC_ERR_FORKED. */
psc_status_t psc_worker_enter(psc_worker_t *worker, uint32_t flags);
void psc_worker_leave(psc_worker_t *worker);
/* Without waiting for the lock: have whoever holds it read the mail. */
void psc_worker_mail(psc_worker_t *worker);

/* Interfaces of a worker, as bits; a structure, so that no truth value passes
 * for one. */
typedef struct psc_ifaces {
    uint32_t bits;
} psc_ifaces_t;

#define PSC_PASS_DUE ((psc_ifaces_t){0}) /* with lanes, whose turn it is */
#define PSC_PASS_ALL ((psc_ifaces_t){UINT32_MAX})

/* With the lock held: poll these interfaces once. The sleepers lose what they
 * have armed: psc_worker_progress_locked settles that; psc_worker_pass leaves
 * it to its caller, who polls again, or arms, or calls psc_settle. */
unsigned psc_worker_pass(psc_worker_t *worker, psc_ifaces_t ifaces);
unsigned psc_worker_progress_locked(psc_worker_t *worker, psc_ifaces_t ifaces);
/* Decide which interfaces each pass polls; after a lane came or went. */
void psc_worker_pace(psc_worker_t *worker);
void psc_worker_clear(int fd);
/* Add a descriptor to an epoll set; -1 with errno. ifaces: what epoll_wait
 * tells of it, the bits of the interfaces that it belongs to. */
int psc_worker_watch(int set, int fd, uint32_t events, uint32_t ifaces);
/* Have a set of descriptors hold those of all fabrics; -1 with errno. */
int psc_iface_watch_all(psc_worker_t *worker, int set);
/* Close and free all interfaces: the worker ends. */
void psc_iface_close_all(psc_worker_t *worker);
/* Tell the control thread to look at its events. */
void psc_worker_control_signal(psc_worker_t *worker);
/* One more interface, or one less, holds bytes that have been sent. */
void psc_worker_count_holding(psc_worker_t *worker, int change);
void psc_worker_signal(int fd);
void psc_worker_log(psc_worker_t *worker, int level, const char *line);
void psc_thread_stop(psc_worker_t *worker);

/* The sleepers' functions of psc_api_t. */
psc_status_t psc_sleeper_create(psc_worker_t *worker,
                                psc_sleeper_t **sleeper_p);
void psc_sleeper_release(psc_worker_t *worker, psc_sleeper_t *sleeper);
int psc_sleeper_descriptor(const psc_sleeper_t *sleeper);
psc_status_t psc_sleeper_arm(psc_sleeper_t *sleeper);
unsigned psc_sleeper_progress(psc_sleeper_t *sleeper);
psc_status_t psc_worker_arm(psc_worker_t *worker);

/* With the lock held. */
static inline void psc_generation_next(psc_worker_t *worker)
{
    atomic_uint *generation = &worker->wait.generation;
    unsigned next = atomic_load_explicit(generation, memory_order_relaxed) + 1;

    /* whoever reads the new one sees what has changed with it */
    atomic_store_explicit(generation, next, memory_order_release);
}

/* With the lock held: wake the sleepers that want one of these reasons. */
static inline void psc_wake(psc_worker_t *worker, uint32_t reasons)
{
    if (reasons & PSC_WAKE_NEWS)
        psc_generation_next(worker);
    if (atomic_load_explicit(&worker->wait.wanted, memory_order_relaxed) &
        reasons)
        psc_wake_sleepers(worker, reasons);
}

/* With the lock held, after passes: rule 3 of sleep.h. */
static inline void psc_settle(psc_worker_t *worker)
{
    if (atomic_load_explicit(&worker->wait.wanted, memory_order_relaxed) &
        (PSC_WAKE_SPENT | PSC_WAKE_POLLED))
        psc_sleepers_settle(worker);
}

/* One stretch of polling; see spin.c. */
typedef struct psc_spin {
    int64_t until;    /* 0: the clock was not looked at yet */
    int64_t deadline; /* of the wait */
    unsigned passes;  /* until the next look at the clock */
    uint64_t away;    /* cycles that offers of the processor took */
    unsigned taken;   /* offers that somebody took */
} psc_spin_t;

void psc_spin_begin(psc_worker_t *worker, psc_spin_t *spin, int64_t deadline);
/* After a pass that found nothing. False: rather sleep. */
bool psc_spin_on(psc_worker_t *worker, psc_spin_t *spin);
/* How many passes to make with the GIL, which keeps others from running. */
unsigned psc_spin_limit(psc_worker_t *worker, unsigned passes);
void psc_spin_pace(psc_worker_t *worker);

bool psc_wait_linger(psc_worker_t *worker, psc_request_t *request, int64_t ns);
psc_status_t psc_wait_requests(psc_worker_t *worker,
                               psc_request_t *const *requests, size_t n,
                               psc_wait_mode_t mode, int64_t timeout_ns);

#endif
