/* Striping: large data is spread over a connection's lanes, from lane i to lane
 * i, in pieces with offsets.
 *
 * A lane has at most PSC_PIECES_MAX pieces in flight, and gets the next piece
 * when it has completed one. The time of a piece gives the lane's rate; if the
 * lane copies pieces into its own buffers, the rate follows from the bytes that
 * it copies between two moments at which the buffers are full. By their rates,
 * lanes that would finish later than the others get none of the last pieces of
 * a message, and a lane that is ten times slower than another gets no pieces at
 * all. A lane that was not measured for a long time is tried again. */
#pragma once

#include "../core/types/connection.h"

/* Moves the request's next piece over the lane, and adds its length to
 * *moved_p. Returns PSC_ERR_NO_RESOURCE if the lane is full. */
typedef psc_status_t (*psc_stripe_move_t)(psc_req_t *req, psc_lane_t *lane,
                                          size_t *moved_p);

/* Returns true if the request's bytes are spread over all lanes. */
bool psc_striped(const psc_req_t *req);
/* Calls `move` with the lane that gets the next piece, or, if that lane is
 * full, with other lanes. left: the bytes of the message that have not been
 * moved. Returns PSC_ERR_NO_RESOURCE if the piece has to wait for a lane. */
psc_status_t psc_stripe_move(psc_req_t *req, uint64_t left,
                             psc_stripe_move_t move, size_t *moved_p);
/* Returns true if a lane can move pieces of the message, now or later. */
bool psc_stripe_possible(const psc_req_t *req);
/* Returns the length of the pieces into which a message of `len` bytes is
 * cut. */
size_t psc_stripe_size(const psc_conn_t *conn, uint64_t len);
/* Returns the lane for the next piece, of `len` bytes, of a message of which
 * `left` bytes are left; or NULL if the piece is to wait until a lane has
 * completed another one. barred: the lanes that cannot move the message; full:
 * the lanes that have refused the piece for now. Both are bits by the indices
 * of the lanes. */
psc_lane_t *psc_stripe_lane(psc_conn_t *conn, uint64_t left, size_t len,
                            uint32_t barred, uint32_t full);
/* Returns true if the lane may get pieces: it is neither lost nor about to take
 * the place of a lost one. */
bool psc_stripe_usable(const psc_lane_t *lane);
/* Returns a psc_piece_t of the lane that is not in use, or NULL. */
psc_piece_t *psc_stripe_piece(psc_lane_t *lane);
/* The lane has taken `len` bytes of the request. If `piece` is not NULL the
 * bytes are in flight until psc_stripe_comp is called; if it is NULL they have
 * been sent completely. */
void psc_stripe_sent(psc_lane_t *lane, psc_piece_t *piece, psc_req_t *req,
                     size_t len);
/* The peer's fabric has refused the piece: complete the piece without an error,
 * and do not measure the lane's rate by it. */
void psc_stripe_refused(psc_piece_t *piece);
/* The lane has ended: complete the pieces that it had in flight. */
void psc_stripe_drop(psc_lane_t *lane);
/* Completion function of pieces. The pieces of a lost spare lane
 * (psc_lane_spare) are completed without an error. */
void psc_stripe_comp(psc_comp_t *comp, psc_status_t status);
