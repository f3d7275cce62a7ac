/* The state of a worker's matching besides the queues of each connection;
 * proto/match.h describes it. */
#pragma once

#include <stdint.h>

#include "pscompy/transport/kit/list.h"

#define PSC_CONTEXT_BUCKETS 16

typedef struct psc_matching {
    psc_list_t contexts[PSC_CONTEXT_BUCKETS];
    /* counts receives and arrivals, so that each gets an `order` */
    uint64_t clock;
} psc_matching_t;

static inline void psc_matching_init(psc_matching_t *matching)
{
    for (int i = 0; i < PSC_CONTEXT_BUCKETS; i++)
        psc_list_init(&matching->contexts[i]);
    matching->clock = 0;
}
