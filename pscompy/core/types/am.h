/* The state of a worker's active messages: the handlers, the messages that have
 * arrived and wait to be polled, and those that other threads have posted.
 * proto/am*.c use it. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "pscompy/transport/kit/list.h"

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
