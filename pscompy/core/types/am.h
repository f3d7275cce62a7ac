/* The state of a worker's active messages: the handlers, the messages that have
 * arrived and wait to be polled, and those that other threads have posted.
 * proto/am*.c use it. */
#ifndef PSCOMPY_CORE_TYPES_AM_H
#define PSCOMPY_CORE_TYPES_AM_H

#include <stdatomic.h>
#include <stdint.h>

#include "pscompy/transport/kit/list.h"

#define PSC_HANDLER_BUCKETS 16
/* Number of size classes of messages whose memory is kept for reuse */
#define PSC_AM_CLASSES 8

/* Memory of released messages, kept for reuse, by size class. */
typedef struct psc_am_idle {
    struct am_node *nodes[PSC_AM_CLASSES];
    size_t bytes;
} psc_am_idle_t;

typedef struct psc_am_state {
    psc_list_t handlers[PSC_HANDLER_BUCKETS];
    psc_list_t queued; /* messages for psc_am_poll */
    atomic_uint n_queued;
    psc_list_t offers; /* messages whose RTS waits for room; proto/am_offer.h */
    uint64_t unpolled; /* bytes of messages that have not been polled */
    _Atomic(struct am_node *) inbox; /* messages of am_post */
    psc_am_idle_t idle;
} psc_am_state_t;

#endif
