/* Receives that the peer sees by messages, where the transport has no
 * PSC_CAP_EXPOSE: the sender of a long message sends it at once, in one
 * message, without an RTS and its answer.
 *
 *   EXPOSE     receiver: a message of up to `len` bytes with these match bits
 *              may be sent as a claim
 *   CLAIM      sender: the message; the receive cannot be claimed again
 *   CONCEAL    receiver: the receive was used otherwise or cancelled
 *   CONCEALED  sender: it was not claimed, and will not be
 *
 * A claim is matched by match.c when it arrives, as every message, and lands in
 * the receive that it finds. This is the receive that was exposed, unless that
 * was withdrawn while the claim was under way: then the message finds another
 * one, or is unexpected. So a receive is withdrawn at once, and the order of
 * messages does not depend on what the sender knows. The entry of a withdrawn
 * receive stays reserved, and can be claimed, until the claim or CONCEALED has
 * arrived; so a peer can send no more than it was allowed to. No receive is
 * exposed while messages without a receive fill PSP_UNEXPECTED_MAX.
 *
 * tests/proto/test_tuple_am_model.py tries these rules, and what happens
 * without each of them. */
#pragma once

#include "../types/conn.h"

/* With PSC_CAP_PUT_AM the message does not travel in the claim: EXPOSE carries
 * a key, by which the sender puts the message into the receive, and instead of
 * CLAIM it sends
 *
 *   PLACED     sender: the message is in the receive
 *
 * So a receive that is cancelled, or that a message comes back to, leaves its
 * queue at once, but its memory is the sender's before that has answered
 * CONCEAL: by CONCEALED, or by PLACED if it had claimed the receive before.
 * Then its message is given back (giveback.h), and matched as if it arrived
 * now: so here, too, the order of messages does not depend on what the sender
 * knows. The memory is revoked if the connection ends. Only an arrival takes
 * the receive back at once: the sender had sent it before it knew of the
 * receive, or knows that the receive was used for it, and claims nothing that
 * its earlier messages fit before it is told that they have matched. Hence
 * CONCEAL is sent before any message that tells so (`seen`).
 *
 * A side that puts no messages answers CONCEAL, too, and announces its
 * messages; so does a side whose peer tells it no keys.
 * tests/proto/test_tuple_put_model.py tries these rules. */

/* Longest message that is sent as a claim: short messages behind it wait. */
#define PSC_CLAIM_MAX (4u << 20)
/* Most bytes that the peer of a connection may send as claims: they bound the
 * memory that claims for withdrawn receives need. */
#define PSC_CLAIMS_MAX (32u << 20)

/* The functions expose, conceal, exposed and claim. */
extern const psc_transport_ops_t psc_tuple_am_ops;

/* The connection's lane is known. Returns false if its receives are not shown
 * by messages, or if there is no memory. `answered`: called when the peer has
 * answered psc_tuple_am_ask that it puts nothing into the receive. */
bool psc_tuple_am_begin(psc_conn_t *conn,
                        void (*answered)(psc_exposed_t *recv));
void psc_tuple_am_end(psc_conn_t *conn);

/* Ask the peer for the receive: it answers by PLACED or CONCEALED (`answered`),
 * unless the connection ends. */
void psc_tuple_am_ask(psc_conn_t *conn, psc_exposed_t *recv, uint64_t seen);
/* Account a message that was put into a receive, and store the receive. Returns
 * PSC_ERR_PROTOCOL if the peer was not allowed to do that. */
psc_status_t psc_tuple_am_placed(psc_conn_t *conn,
                                 const psc_wire_placed_t *wire,
                                 psc_exposed_t **recv_p);
/* Account a claim that arrives. Returns PSC_ERR_PROTOCOL if the peer was not
 * allowed to send this message. */
psc_status_t psc_tuple_am_claimed(psc_conn_t *conn,
                                  const psc_wire_claim_t *wire, uint64_t len);
psc_status_t psc_tuple_am_expose_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_tuple_am_conceal_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_tuple_am_concealed_arrived(psc_lane_t *lane,
                                            const psc_am_t *am);
/* Send the CONCEAL and CONCEALED messages that are due
 * (conn->lost.replay_due). Returns true if anything was sent. */
bool psc_tuple_am_flush(psc_conn_t *conn);
