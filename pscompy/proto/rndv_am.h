/* FRAG, the rendezvous by active messages; see rndv.h. */
#pragma once

#include "../core/types/connection.h"

/* Runs stage FRAG: sends the next fragments. */
psc_status_t psc_rndv_frag(psc_req_t *req);
psc_status_t psc_rndv_frag_arrived(psc_lane_t *lane, const psc_am_t *am);
/* Returns PSC_ERR_UNSUPPORTED if the payload covers too many pieces to be
 * received in place; the caller uses a bounce buffer. */
psc_status_t psc_rndv_frag_begin(psc_lane_t *lane, const psc_wire_frag_t *wire,
                                 uint64_t len, psc_dest_t *dest);
void psc_rndv_frag_end(psc_lane_t *lane);
