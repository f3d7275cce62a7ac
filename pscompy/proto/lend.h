/* Lending: the sender lends the pages of a message instead of sending a copy.
 *
 *   RTS(LENT, key of the segment, offset) ->
 *      a receive matches: map the segment, once; make a view of the message
 *                                  <- TAKEN   unless released at once
 *                                  <- FIN     when the view is released
 *
 * The sender's request is done when the FIN arrives or the connection ends:
 * then the peer does not read the pages any more, or its process has ended. A
 * receiver that closes the connection, or loses the peer, first makes private
 * copies of the views that are still held (psc_map_t.keep), so that they keep
 * their contents. A lent message that is received into a buffer is an ordinary
 * rendezvous. */
#pragma once

#include "match.h"
#include "protocol.h"

extern const psc_proto_t psc_lend;

/* Shorter messages are copied, because a copy is cheaper than the three control
 * messages RTS, TAKEN and FIN. */
#define PSC_LEND_MIN 4096u

/* ---- the sender ---- */
psc_status_t psc_lend_taken_arrived(psc_lane_t *lane, const psc_am_t *am);
/* Returns the result of a send when its connection ends with `status`: PSC_OK
 * for a lent message that was announced, because that counts as sent. */
psc_status_t psc_lend_outcome(const psc_req_t *req, psc_status_t status);

/* ---- the receiver ---- */
psc_status_t psc_lend_view(psc_req_t *req, psc_view_t **view_p);
/* Runs stage SEND_TAKEN: notifies the sender that its message is in use. */
psc_status_t psc_lend_send_taken(psc_req_t *req);
/* Release a view. May be called by any thread, even after the worker has
 * ended. */
void psc_lend_return(psc_view_t *view);
/* Send a FIN to the sender of each message whose view was released. */
void psc_lend_drain(psc_worker_t *worker);
/* The connection's CLOSE is about to be sent: make private copies of all views
 * of the peer's memory. */
void psc_lend_conn_closing(psc_conn_t *conn);
/* End a loan (the internal request of a view) whose connection has ended. */
void psc_lend_end(psc_req_t *req);
void psc_lend_conn_ended(psc_conn_t *conn);
void psc_lend_worker_destroy(psc_worker_t *worker);
