/* Striping: large data is spread over a connection's lanes by bandwidth, from
 * lane i to lane i, in pieces with offsets. */
#ifndef PSCOMPY_CORE_PROTO_STRIPE_H
#define PSCOMPY_CORE_PROTO_STRIPE_H

#include "../types/conn.h"

/* Returns that lane of the first n_lanes which would finish `len` bytes first.
 */
psc_lane_t *psc_stripe_next(psc_conn_t *conn, uint32_t n_lanes, size_t len);
/* Add `len` bytes to the lane's load. */
void psc_stripe_charge(psc_lane_t *lane, size_t len);

#endif
