/* Matching: the only place that decides which message goes to which receive.
 *
 * A message has (context, source, tag). A receive names a source or any, and a
 * tag or any. MPI's rules hold: of the receives that fit a message the earliest
 * posted gets it; of the messages of one source that fit a receive, the
 * earliest arrived gets the receive, so that messages of one source never
 * overtake each other.
 *
 * Receives with a source are queued per connection and context, receives from
 * any source per context. Both have an `order`, which decides between two
 * candidates. A message without a receive stands in two lists: its source's,
 * and the context's, in order of arrival. In each list a tag finds the first
 * entry that fits in constant time (match_list.h). */
#pragma once

#include "match_queue.h"
#include "unexpected.h"

/* psc_match_arrival returns this pointer, which points to nothing, for a
 * message that the peer must not have sent. The caller keeps nothing of the
 * message and returns PSC_ERR_PROTOCOL, so that the connection ends. */
#define PSC_MATCH_REFUSED ((psc_req_t *)1)

/* Find the receive for this message and take the receive out of its queue. The
 * receive's result gets the order of arrival. Returns NULL if no receive
 * matches, or PSC_MATCH_REFUSED. */
psc_req_t *psc_match_arrival(psc_conn_t *conn, uint32_t context, int32_t tag);
/* Find the receive for a message that was put back into its lists, and take the
 * receive out of its queue. A receive that was posted to the fabric meanwhile
 * is recalled for it; a receive in stage LANDING gets the message when the peer
 * has answered (psc_recv_returned). Returns NULL if no receive matches. */
psc_req_t *psc_match_return(const psc_unexp_t *unexp);
/* Queue a message that matches no receive as unexpected; probes that fit it are
 * done. If memory is short, the message is freed. */
psc_status_t psc_match_keep(psc_unexp_t *unexp);
/* Put a message back to its old place among the unexpected messages. */
psc_status_t psc_match_put_back(psc_unexp_t *unexp);
/* Add a receive or a probe to its queue; `lists` is from psc_unexp_find. */
psc_status_t psc_match_post(psc_req_t *req, psc_match_lists_t *lists);
/* Take a posted receive or probe out of its queue. */
void psc_match_leave(psc_req_t *req);
/* Hand out a receive that names its source, if it may be (protocol.h). Takes
 * the place of psc_match_post. Returns false if the receive is to be posted. */
bool psc_match_hand_out(psc_req_t *req);
/* The connection is up: hand out the receives that were posted before. */
void psc_match_hand_out_all(psc_conn_t *conn);
/* Take back a receive that was handed out. Returns PSC_ERR_INVALID if a message
 * has met it, and PSC_INPROGRESS if the peer has to be asked first. */
psc_status_t psc_match_recall(psc_req_t *req);
/* A message has met a receive that was handed out: take the receive out of its
 * queue, unless it has left the queue before. */
void psc_match_met(psc_req_t *req);
void psc_match_conn_destroy(psc_conn_t *conn);
/* End the receives and probes that name this connection as their source. */
void psc_match_receives_ended(psc_conn_t *conn, psc_status_t status);
