/* psc_mem_t: one user of a registration. */
#ifndef PSCOMPY_IB_MEM_H
#define PSCOMPY_IB_MEM_H

#include "cache.h"
#include "ib.h"

struct psc_mem {
    psc_link_t user; /* in hold->users */
    ib_hold_t *hold;
    ib_ep_t *ep;     /* the only peer that uses it, or NULL */
    uint64_t address, len;
    bool own;        /* the hold has no other user */
    bool exposed;    /* through the hold's window */
};

#endif
