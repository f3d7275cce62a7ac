/* Requeueing: a receive has matched, but its consumer wants to withdraw it.
 *
 * The message returns to its old place among the unexpected messages, by its
 * order of arrival, as a copy that depends neither on the buffer nor on the
 * lane. So no message is lost, and none overtakes another.
 *
 * A message that is still arriving continues into the buffer of the original
 * receive, because a fabric may be writing there. Meanwhile its record
 * (psc_unexp_t) stands in the queue as `arriving`; a receive that matches it
 * waits for the rest. When the original receive ends, the bytes are copied to
 * the record, and the buffer returns to its owner. Until then the record
 * belongs to the original receive.
 *
 * A fabric may have matched the receive, or the peer claimed it, without having
 * reported the message yet. The message then goes back when it is reported: at
 * once, although it may still be arriving.
 *
 * Bytes for which the original receive had no room are lost: the message is
 * given back truncated. */
#pragma once

#include "match.h"

/* Requeue a receive that has not ended: its message returns to the queue of
 * unexpected messages. Returns PSC_OK if the receive has ended with
 * PSC_ERR_CANCELLED, PSC_INPROGRESS if it will end so later, and
 * PSC_ERR_INVALID if it had ended before or is not a receive. */
psc_status_t psc_requeue_request(psc_req_t *req);
/* Requeue the message of a receive that has ended, copied from the memory
 * that it was received into. */
psc_status_t psc_requeue_message(psc_worker_t *worker, uint32_t context,
                                 const psc_result_t *result,
                                 const psc_iov_t *iov, size_t n_iov);
/* A receive that was handed out has met a message, which is known now. If the
 * receive was given back before, its message is requeued, so that no later
 * message overtakes it. */
void psc_requeue_met(psc_req_t *req);
/* The connection has ended: free the records of messages that are still
 * arriving. */
void psc_requeue_conn_ended(psc_conn_t *conn);
