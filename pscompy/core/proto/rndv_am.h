/* FRAG: see rndv.h. */
#ifndef PSCOMPY_PROTO_RNDV_AM_H
#define PSCOMPY_PROTO_RNDV_AM_H

#include "../types/conn.h"

psc_status_t psc_rndv_frag(psc_req_t *req); /* stage FRAG */
psc_status_t psc_rndv_frag_arrived(psc_lane_t *lane, const psc_am_t *am);
/* UNSUPPORTED: the payload has too many pieces to land in place. */
psc_status_t psc_rndv_frag_begin(psc_lane_t *lane, const psc_wire_frag_t *wire,
                                 uint64_t len, psc_dest_t *dest);
void psc_rndv_frag_end(psc_lane_t *lane);

#endif
