/* A connection's queued work. conn.h adds to it, conn.h sends
 * it. */
#pragma once

#include "request.h"

/* The kinds of queued work. Requests of one kind wait for the same resource of
 * a lane, so if the first of them cannot go on, the others are not tried. */
typedef enum psc_work_kind {
    PSC_WORK_CONTROL, /* a control message is to be sent */
    PSC_WORK_FRAGS,   /* FRAGs are to be sent */
    PSC_WORK_MOVES,   /* puts or gets are to be issued */
    PSC_WORK_ORDERED, /* sends, to be issued in the order of their posting */
    PSC_WORK_KINDS
} psc_work_kind_t;

typedef struct psc_work {
    psc_link_t busy_link; /* link in the worker's list of busy connections */
    psc_list_t queues[PSC_WORK_KINDS];
    psc_list_t fins; /* requests whose FINs are sent together */
} psc_work_t;

/* Returns the work queue in which a request in this stage waits. */
static inline psc_work_kind_t psc_work_kind(psc_stage_t stage)
{
    switch (stage) {
    case PSC_STAGE_SEND:
    case PSC_STAGE_SEND_MARK:
        return PSC_WORK_ORDERED;
    case PSC_STAGE_FRAG:
        return PSC_WORK_FRAGS;
    case PSC_STAGE_PUT:
    case PSC_STAGE_GET:
    case PSC_STAGE_FLUSH:
    case PSC_STAGE_RMA_DIRECT:
        return PSC_WORK_MOVES;
    default:
        return PSC_WORK_CONTROL;
    }
}

static inline void psc_work_init(psc_work_t *work)
{
    psc_list_init(&work->busy_link);
    psc_list_init(&work->fins);
    for (int i = 0; i < PSC_WORK_KINDS; i++)
        psc_list_init(&work->queues[i]);
}

static inline bool psc_work_empty(const psc_work_t *work)
{
    bool empty = psc_list_empty(&work->fins);

    for (int i = 0; i < PSC_WORK_KINDS; i++)
        empty &= psc_list_empty(&work->queues[i]);
    return empty;
}
