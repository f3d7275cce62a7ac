/* A receive that y advertises to x, which checks itself. */
#pragma once

#include "shm_cases.h"

#define LEN 100000u
#define ROUNDS 200u

typedef struct shown {
    psc_exposed_t recv; /* first */
    char *buffer;
    unsigned taken, landed;
    bool ours; /* the transport has it */
} advert_t;

static inline void advert_taken(psc_exposed_t *recv, uint64_t bits,
                                uint64_t len)
{
    advert_t *shown = (advert_t *)recv;

    (void)bits;
    (void)len;
    ct_check(shown->ours && shown->taken == 0, "taken twice");
    shown->taken++;
}

static inline void advert_landed(psc_exposed_t *recv, psc_status_t status)
{
    advert_t *shown = (advert_t *)recv;

    (void)status;
    ct_check(shown->ours, "landed twice");
    shown->ours = false;
    shown->landed++;
    memset(shown->buffer, 1, LEN);
}

static inline void advert_expose(ct_pair_t *pair, advert_t *shown,
                                 uint64_t bits)
{
    shown->recv = (psc_exposed_t){.match = bits,
                                  .ignore = bits % 2 ? PSC_TAG_MASK : 0,
                                  .buffer = {shown->buffer, LEN},
                                  .taken = advert_taken,
                                  .landed = advert_landed};
    shown->taken = 0;
    shown->ours = ct_ops->expose(pair->y.ep, &shown->recv, bits) == PSC_OK;
}
