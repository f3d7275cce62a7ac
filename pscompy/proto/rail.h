/* The loss of a rail: a lane may fail, and its connection goes on over the
 * other lanes, if the failed lane carries only pieces of long messages, which
 * are fragments, puts or gets. rail.c moves these pieces again. All other
 * messages travel on the main lane, in order; replay.h describes the loss of
 * that lane.
 *
 * Either side may notice the loss first. Each side then
 *   1. delivers nothing from the lane any more, and uncounts the bytes of
 *      incomplete messages that have arrived over it;
 *   2. waits until the fabric has released the lane, so that no late write can
 *      reach memory that the program has back, and sends LANE_DOWN.
 *      If the peer's LANE_DOWN has arrived before, there is nothing to wait
 *      for, because the endpoint delivers nothing after ep_close, and the peer
 *      does not read what the endpoint has not sent yet. But puts and gets in
 *      flight, which use the program's memory, are waited for in any case;
 *   3. once the peer's LANE_DOWN has arrived too, moves again, over the other
 *      lanes, what the lane had taken: fragments of messages that their
 *      receiver has not confirmed, and puts and gets that are not complete.
 * The FIN of a message that is complete goes before LANE_DOWN, so nothing of it
 * is sent again.
 *
 * After that the control planes may connect a new lane in its place. Each side
 * sends LANE_UP once it has put the lane there, and sends fragments
 * over it once the peer's LANE_UP has arrived, too. One side may lose the new
 * lane before the other side has installed it; the other side then gives the
 * lane up as soon as it is installed, or, if the lane does not come up there,
 * answers LANE_DOWN. */
#pragma once

#include "../core/types/connection.h"

/* ---- the pieces of a message ---- */

/* Returns the bytes to move next; bytes that must be moved again come first. */
psc_span_t psc_rail_next(const psc_bulk_t *bulk);
/* Make room in bulk->taken for one more span (a range of bytes that was given
 * to a lane). Returns false if there is no memory. */
bool psc_rail_reserve(psc_bulk_t *bulk);
/* Note that the first `len` bytes of psc_rail_next were given to the lane. */
void psc_rail_taken(psc_req_t *req, const psc_lane_t *lane, size_t len);
/* The lane has completed the put or get that begins at `offset` of the
 * message. */
void psc_rail_done(psc_req_t *req, const psc_lane_t *lane, uint64_t offset);
/* Move the lane's spans from bulk->taken to bulk->again. Returns false, and
 * moves none, if there is no memory. */
bool psc_rail_take_back(psc_bulk_t *bulk, uint8_t lane);
/* Move only the lane's span (a put or get) that begins at `offset` from
 * bulk->taken to bulk->again. Returns false if there is no memory. */
bool psc_rail_take_back_one(psc_bulk_t *bulk, uint8_t lane, uint64_t offset);
/* Returns true if all bytes of the message were given to lanes. */
bool psc_rail_all_taken(const psc_bulk_t *bulk);

/* ---- the end of a lane ---- */

void psc_rail_lost(psc_lane_t *lane);
void psc_rail_sealed(psc_lane_t *lane);
/* Send LANE_DOWN or LANE_UP (`id`) for the first lane for which it is due. */
psc_status_t psc_rail_send(psc_conn_t *conn, psc_wire_id_t id);
psc_status_t psc_rail_down_arrived(psc_lane_t *lane, const psc_am_t *am);
/* The peer has installed this new lane, as its LANE_UP or RESUME shows. */
void psc_rail_met(psc_lane_t *lane);
psc_status_t psc_rail_up_arrived(psc_lane_t *lane, const psc_am_t *am);
