/* RTS: the start of a rendezvous on either side; see rndv.h.
 */
#pragma once

#include "protocol.h"

extern const psc_proto_t psc_rndv;

/* Announce the message of a request in stage SEND, which then waits in stage
 * AWAIT_RTR. */
psc_status_t psc_rndv_start(psc_req_t *req);
psc_status_t psc_rndv_rts_arrived(psc_lane_t *lane, const psc_am_t *am);
