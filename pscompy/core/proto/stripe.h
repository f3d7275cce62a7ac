/* Striping: large data is spread over a connection's lanes by bandwidth, lane
 * i to lane i, in pieces with offsets under one descriptor per message. */
#ifndef PSCOMPY_PROTO_STRIPE_H
#define PSCOMPY_PROTO_STRIPE_H

#include "../types/conn.h"

/* The lane, of the first n_lanes, that would finish `len` more bytes first. */
psc_lane_t *psc_stripe_next(psc_conn_t *conn, uint32_t n_lanes, size_t len);
/* That lane took them. */
void psc_stripe_charge(psc_lane_t *lane, size_t len);

#endif
