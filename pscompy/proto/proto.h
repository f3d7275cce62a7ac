/* The two tables of the protocols: the function for each arriving active
 * message, and the function that advances a request from each stage. */
#pragma once

#include "../core/types/connection.h"

/* The next functions are members of psc_upward_t. */
psc_status_t psc_proto_advance(psc_req_t *req);
psc_status_t psc_proto_arrived(psc_lane_t *lane, const psc_am_t *am);
void psc_proto_begin(psc_lane_t *lane, const void *header, psc_dest_t *dest);
psc_status_t psc_proto_end(psc_lane_t *lane);
/* The lane failed between begin and end: drop the payload that was arriving. */
void psc_proto_abort(psc_lane_t *lane);
