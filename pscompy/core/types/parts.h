/* Small parts of a worker: active messages, what is ending, matching, memory.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <stdbool.h>

#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/table.h"
#include "../control.h"

/* ---- am ---- */

/* The state of a worker's active messages: the handlers, the messages that have
 * arrived and wait to be polled, and those that other threads have posted.
 * proto/am*.c use it. */

#define PSC_HANDLER_BUCKETS 16
/* Number of size classes of active messages whose memory is kept for reuse */
#define PSC_AM_CLASSES 8

/* Memory of active messages that were freed, kept for reuse: one chain of
 * am_node_t per size class. */
typedef struct psc_am_idle {
    struct am_node *nodes[PSC_AM_CLASSES];
    size_t bytes;
} psc_am_idle_t;

typedef struct psc_am_state {
    psc_list_t handlers[PSC_HANDLER_BUCKETS];
    psc_list_t queued; /* messages that wait for psc_am_poll */
    atomic_uint n_queued;
    uint64_t unpolled; /* bytes of messages that have not been polled */
    /* messages that am_post has queued, the newest first */
    _Atomic(struct am_node *) inbox;
    psc_am_idle_t idle;
} psc_am_state_t;

/* ---- ends ---- */

/* The requests, lanes and connections of a worker that are ending: a pass of
 * progress frees each as soon as no peer and no lane needs it. */

typedef struct psc_ends {
    bool any;            /* one of the lists is not empty */
    psc_list_t revoking; /* failed requests that a peer may still write to */
    psc_list_t retiring; /* lanes waiting for ep_fini */
    psc_list_t doomed;   /* destroyed connections; freed when unused */
} psc_ends_t;

static inline void psc_ends_init(psc_ends_t *ends)
{
    ends->any = false;
    psc_list_init(&ends->revoking);
    psc_list_init(&ends->retiring);
    psc_list_init(&ends->doomed);
}

/* Add the object with this link to one of the three lists. */
static inline void psc_ends_add(psc_ends_t *ends, psc_list_t *list,
                                psc_link_t *link)
{
    psc_list_push(list, link);
    ends->any = true;
}

/* Recompute `any`; call after objects were removed from the lists. */
static inline void psc_ends_update(psc_ends_t *ends)
{
    ends->any = !psc_list_empty(&ends->revoking) ||
                !psc_list_empty(&ends->retiring) ||
                !psc_list_empty(&ends->doomed);
}

/* ---- matching ---- */

/* The state of a worker's matching besides the queues of each connection;
 * proto/match.h describes it. */

typedef struct psc_matching {
    psc_table_t contexts; /* of psc_context_t, by context */
    /* the open contexts: those of Worlds that psc_worker_open_context has
     * opened, and that are not closed yet */
    psc_table_t open;
    psc_table_t no_queues; /* always empty: of connections without queues */
    /* Of the contexts of Worlds whose number is below this one, all but the
     * open ones are closed: nothing is received in them any more. */
    uint32_t next_number;
    uint64_t seed; /* of these tables, and of those of all connections */
    /* counts receives and arrivals, so that each gets an `order` */
    uint64_t clock;
} psc_matching_t;

/* ---- collectives ---- */

typedef struct psc_engine psc_engine_t; /* defined in upward.h */

/* The collectives of a worker; coll/coll.h. */
typedef struct psc_runs {
    const psc_engine_t *engine; /* NULL until the worker has a group */
    psc_list_t ready; /* runs that can go on */
    psc_list_t groups;
    psc_list_t lost; /* of psc_lost_rank_t (lost_ranks.h), the oldest first */
    bool news; /* the engine has not handled all of `lost` */
} psc_runs_t;

static inline void psc_runs_init(psc_runs_t *runs)
{
    psc_list_init(&runs->ready);
    psc_list_init(&runs->groups);
    psc_list_init(&runs->lost);
    runs->news = false;
}

/* ---- memory ---- */

/* The memory of a worker that peers reach: regions that they put to and get
 * from (proto/region.c), and the pool whose pages are lent (memory/pool.c). */

typedef struct psc_memory {
    psc_list_t regions;
    uint64_t last_region; /* the id of the newest region */
    /* key of the hash that authenticates packed regions */
    uint8_t secret[PSC_SECRET_SIZE];
    struct psc_pool *pool;
    /* released views of lent messages, for the thread that holds the lock
     * (psc_lend_drain) */
    _Atomic(struct psc_loan *) returned;
} psc_memory_t;
