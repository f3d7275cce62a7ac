/* Messages that arrive before their lane is installed in a connection. */
#pragma once

#include "types/lane.h"

/* Maximum number of bytes that are kept for a lane that is not installed. A
 * correct peer sends less: before our first answer it may send only control
 * messages, and eager messages within the initial credit. */
#define PSC_EARLY_MAX (1u << 20)

typedef struct psc_early {
    psc_link_t link;
    psc_am_t am;
    _Alignas(8) uint8_t data[];
} psc_early_t;

/* Keep a copy of a message until the lane is installed. Returns
 * PSC_ERR_PROTOCOL if the bytes that are kept exceed PSC_EARLY_MAX. */
psc_status_t psc_early_keep(psc_lane_t *lane, const psc_am_t *am);
/* Take out the earliest message that was kept; the caller frees it. Returns
 * NULL if none is left. */
psc_early_t *psc_early_pop(psc_lane_t *lane);
void psc_early_drop(psc_lane_t *lane);
