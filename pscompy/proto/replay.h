/* The loss of the lane that carries the ordered messages.
 *
 * Of several lanes any may fail, if all are replaceable (psc_lane_replaceable).
 * One of them, the main lane, carries all messages that are matched or must
 * stay in order: all but CREDIT, SEEN, RESUME and the pieces that are spread
 * over the lanes (rail.h is for those). Both sides count these ordered
 * messages, modulo 2^32; a lane keeps their order, so that a message need not
 * carry its number. The sender keeps a copy of each, in its retransmit
 * queue, until the receiver acknowledges it by SEEN. SEEN has the number of the
 * last ordered message that was delivered, and is sent for every PSC_REPLAY_ACK
 * bytes of ordered messages, and in place of CREDIT.
 *
 * When the main lane is lost, the sender chooses another lane, the first that
 * is up, and sends over that one
 *   1. RESUME, with the number of the first message that it still has;
 *   2. the messages of its retransmit queue from that one on;
 *   3. new messages, among them LANE_DOWN (rail.h).
 * The receiver drops those that it has delivered before. If the new lane is
 * lost, too, the same begins again on a third one; RESUMEs are numbered, so
 * that one that arrives late on a lane that was given up has no effect.
 *
 * The two directions are independent: each sender chooses its lane, and may
 * notice a loss before or after the other one. A RESUME tells that the lane
 * used before is lost on the other side, so it is given up on this side, too.
 *
 * The FIN of a put or get waits until none of its pieces is in flight, and none
 * was given to a lost lane whose pieces may not be moved again yet (step 3 in
 * rail.h). So a FIN that is sent again says what it said before. An RTS or RTR
 * that is sent again may have keys of the lost lane, which the receiver leaves
 * out. A message for which no lane has a key any more is moved as a whole in
 * another way (rndv_direct.c).
 *
 * A message is delivered when all of it has arrived, so that no message is
 * delivered in part: on such a connection only the FRAGs that are spread over
 * the lanes are received directly into their buffers.
 *
 * The retransmit queue has at most PSC_REPLAY_MAX bytes, headers included; a
 * message that does not fit waits as if its lane were full. Eager messages
 * reach this bound only if PSP_EAGER_WINDOW is increased. The memory of the
 * retransmit queue grows to twice PSC_REPLAY_MAX at most, and shrinks when most
 * of them are acknowledged. */
#pragma once

#include "../core/types/connection.h"

#define PSC_REPLAY_MAX (8u << 20)
#define PSC_REPLAY_ACK (128u << 10)

/* The lanes are known: from now on messages are counted, if there are several
 * lanes and all are replaceable (psc_lane_replaceable). Returns false if there
 * is no memory. */
bool psc_replay_begin(psc_conn_t *conn);
void psc_replay_end(psc_conn_t *conn);

/* ---- sending ---- */

/* The lane is lost: if it was the main lane, choose another main lane; if there
 * is none, end the connection. */
void psc_replay_lost(psc_lane_t *lane);
/* Send RESUME, the retransmit queue and SEEN, if they are due. Returns true if
 * anything was sent. */
bool psc_replay_flush(psc_conn_t *conn);
/* Send SEEN, which also reports the credit. */
psc_status_t psc_replay_ack(psc_conn_t *conn);

/* ---- arriving ---- */

/* Returns true if the payload of a message with this header may be received
 * before the message is counted. */
bool psc_replay_direct(const psc_lane_t *lane, uint8_t id, const void *header);
/* A message has arrived on a lane of several. Returns PSC_OK if it is to be
 * delivered, PSC_INPROGRESS if it was delivered before, PSC_ERR_PROTOCOL if it
 * must not arrive on this lane. */
psc_status_t psc_replay_take(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_replay_seen_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_replay_resume_arrived(psc_lane_t *lane, const psc_am_t *am);
