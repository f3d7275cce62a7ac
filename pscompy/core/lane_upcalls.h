/* The upcalls that every transport makes, how lanes are installed, and how a
 * lane's failure ends its connection. With the lock held. */
#pragma once

#include "types/connection.h"

extern const psc_upcalls_t psc_lane_upcalls;
/* Let these lanes carry the connection's messages; see psc_conn_install. */
psc_status_t psc_lanes_install(psc_conn_t *conn, psc_lane_t **lanes,
                               uint32_t n_lanes,
                               const psc_proto_params_t *params);
/* Put a new lane into the place of a lost one; see psc_conn_join. */
psc_status_t psc_lane_join(psc_conn_t *conn, uint32_t index, psc_lane_t *lane);
/* Connect to the connection's rank by a call; see psc_conn_call. */
psc_status_t psc_call_begin(psc_conn_t *conn);
/* The peer has violated the protocol on this lane: end the connection. */
void psc_lane_break(psc_lane_t *lane, psc_status_t status);
