/* What the core asks of the protocols above it: the only door from core/ to
 * core/proto/, which implements all of this. With the worker's lock held. */
#ifndef PSCOMPY_CORE_UPWARD_H
#define PSCOMPY_CORE_UPWARD_H

#include "conn.h"

/* ---- what moves ---- */

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

/* ---- control messages ---- */

/* CREDIT, CLOSE or CLOSE_ACK; false: the lane takes nothing now. */
bool psc_proto_send_control(psc_conn_t *conn, psc_wire_id_t id);
/* The FINs that have come together; true if any left. */
bool psc_proto_send_fins(psc_conn_t *conn);

/* ---- beginnings and ends ---- */

void psc_proto_conn_init(psc_conn_t *conn);
/* What the two sides agreed on, within what the protocols can do. */
void psc_proto_conn_params(psc_conn_t *conn,
                           const psc_proto_params_t *params);
/* Its lanes are known, and nothing was heard over them yet. */
void psc_proto_conn_lanes(psc_conn_t *conn);
/* Its lanes are installed. */
void psc_proto_conn_up(psc_conn_t *conn);
/* Everything that it has outstanding ends with the status; what has arrived
 * whole may still be received. */
void psc_proto_conn_ended(psc_conn_t *conn, psc_status_t status);
/* The posted receives and probes that name it end. */
void psc_proto_receives_ended(psc_conn_t *conn, psc_status_t status);
/* Its last word is about to leave. */
void psc_proto_conn_closing(psc_conn_t *conn);
/* Is there anything that the peer has still to be sent? */
bool psc_proto_sends_pending(const psc_conn_t *conn);
/* Unreceived messages go. */
void psc_proto_conn_destroy(psc_conn_t *conn);
/* The worker ends, and with it all regions: how many of them a peer is writing
 * into at this moment. */
unsigned psc_proto_regions_revoke(psc_worker_t *worker);
/* The worker ends: before its connections go, and after. */
void psc_proto_worker_stop(psc_worker_t *worker);
void psc_proto_worker_destroy(psc_worker_t *worker);
/* What others left for the owner of the lock. */
void psc_proto_inbox_drain(psc_worker_t *worker);

#endif
