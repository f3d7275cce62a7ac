/* A connection's queued work. conn_queue.h adds to it, conn_flush.h sends
 * it. */
#ifndef PSCOMPY_CORE_TYPES_WORK_H
#define PSCOMPY_CORE_TYPES_WORK_H

#include <stdbool.h>

#include "pscompy/transport/kit/list.h"

typedef struct psc_work {
    psc_link_t busy_link; /* in the worker's busy */
    psc_list_t urgent;  /* requests with a control message, in any order */
    psc_list_t fins;    /* requests whose FINs are sent together */
    psc_list_t ordered; /* sends to be issued in order */
} psc_work_t;

static inline void psc_work_init(psc_work_t *work)
{
    psc_list_init(&work->busy_link);
    psc_list_init(&work->urgent);
    psc_list_init(&work->fins);
    psc_list_init(&work->ordered);
}

static inline bool psc_work_empty(const psc_work_t *work)
{
    return psc_list_empty(&work->urgent) && psc_list_empty(&work->fins) &&
           psc_list_empty(&work->ordered);
}

#endif
