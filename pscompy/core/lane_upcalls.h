/* The upcalls that every transport makes, and how a lane's failure ends its
 * connection. With the lock held. */
#ifndef PSCOMPY_CORE_LANE_UPCALLS_H
#define PSCOMPY_CORE_LANE_UPCALLS_H

#include "types/conn.h"

extern const psc_upcalls_t psc_lane_upcalls;
/* Deliver the messages that arrived before the lane was installed. */
void psc_lane_replay(psc_lane_t *lane);
/* The lane has FAILED: fail its connection, if it has one, with its status. */
void psc_lane_fail_conn(psc_lane_t *lane);
/* The peer has violated the protocol on this lane: end the connection. */
void psc_lane_break(psc_lane_t *lane, psc_status_t status);

#endif
