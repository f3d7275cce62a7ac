/* The protocols' two tables: what an arriving active message does, and what
 * moves a request on from each stage. */
#ifndef PSCOMPY_PROTO_PROTO_H
#define PSCOMPY_PROTO_PROTO_H

#include "../conn.h"

/* Move a request as far as it goes: until it waits for the peer or the
 * fabric, is done, or (NO_RESOURCE) must be tried again later. */
psc_status_t psc_proto_advance(psc_req_t *req);

/* Dispatch of what a lane delivers. An error breaks the lane. */
psc_status_t psc_proto_arrived(psc_lane_t *lane, const psc_am_t *am);
void psc_proto_begin(psc_lane_t *lane, uint8_t id, const void *header,
                     uint8_t header_len, uint64_t len, psc_dest_t *dest);
psc_status_t psc_proto_end(psc_lane_t *lane);
/* The lane broke between begin and end. */
void psc_proto_abort(psc_lane_t *lane);

#endif
