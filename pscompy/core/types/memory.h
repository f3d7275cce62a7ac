/* The memory of a worker that peers reach: regions that they put to and get
 * from (proto/region.c), and the pool whose pages are lent (memory/pool.c). */
#pragma once

#include "../control.h"
#include "pscompy/transport/kit/list.h"

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
