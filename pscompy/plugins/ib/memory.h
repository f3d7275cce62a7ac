/* What a registration is to whoever uses it. */
#ifndef PSCOMPY_IB_MEM_H
#define PSCOMPY_IB_MEM_H

#include "cache.h"
#include "ib.h"

struct psc_mem {
    psc_link_t user; /* in hold's users */
    ib_hold_t *hold;
    ib_ep_t *ep;     /* the one peer that will use it, or NULL */
    uint64_t address, len;
    bool own;        /* the hold serves nobody else */
    bool exposed;    /* by the hold's window */
};

#endif
