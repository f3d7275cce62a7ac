/* The upcalls that every transport makes, and how a connection ends with a lane
 * of it. With the lock held. */
#ifndef PSCOMPY_CORE_LANE_UPCALLS_H
#define PSCOMPY_CORE_LANE_UPCALLS_H

#include "types/conn.h"

extern const psc_upcalls_t psc_lane_upcalls;
/* Deliver the messages that have arrived before the installation. */
void psc_lane_replay(psc_lane_t *lane);
/* The lane has FAILED: its connection, if it has one, fails with its status. */
void psc_lane_fail_conn(psc_lane_t *lane);
/* What the peer sent over it is not what it may send: the connection ends. */
void psc_lane_break(psc_lane_t *lane, psc_status_t status);

#endif
