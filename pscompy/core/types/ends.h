/* The requests, lanes and connections of a worker that are ending: a pass of
 * progress frees each as soon as no peer and no lane needs it. */
#pragma once

#include <stdbool.h>

#include "pscompy/transport/kit/list.h"

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
