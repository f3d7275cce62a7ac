/* Sending, receiving, probing and withdrawing messages. Called with the
 * worker's lock held; api_message.c takes it. */
#pragma once

#include "../core/types/connection.h"
#include "match.h"

/* ---- send.c ---- */

/* Each message tries the protocols of list.c in their order. */

/* In the next functions `aux` is the header length of an active message, 0 for
 * other messages. */

/* Send at once without a request, if nothing is queued, there is credit, and
 * the message is small enough to be copied. Returns PSC_ERR_NO_RESOURCE if
 * psc_send must be used. */
psc_status_t psc_send_now(psc_conn_t *conn, const psc_send_args_t *args,
                          uint16_t aux);
/* Send a message, or begin to: then sets *request_p and returns
 * PSC_INPROGRESS. */
psc_status_t psc_send(psc_conn_t *conn, const psc_send_args_t *args,
                      uint16_t aux, psc_request_t **request_p);
/* Returns true if a progress pass before the send may let the message be sent
 * at once, because the pass may read credit for an eager message, or the
 * ADVERTISE of a receive (tuple.h). */
bool psc_send_reads_first(const psc_conn_t *conn, const psc_send_args_t *args);
/* Runs stage SEND: chooses the protocol of the message. */
psc_status_t psc_send_progress(psc_req_t *req);

/* ---- recv.c ---- */

/* Create the request of a send, a receive or a probe. */
psc_status_t psc_message_request(psc_worker_t *worker, psc_req_kind_t kind,
                                 const psc_recv_args_t *args,
                                 psc_req_t **req_p);

/* Receive a message that has arrived (PSC_OK), or begin to: then sets
 * *request_p and returns PSC_INPROGRESS. */
psc_status_t psc_recv(psc_worker_t *worker, const psc_recv_args_t *args,
                      psc_result_t *result_p, psc_request_t **request_p);
/* Give a receive that has matched its buffer. */
psc_status_t psc_recv_supply(psc_req_t *req, const psc_iov_t *iov,
                             size_t n_iov);
/* Describe the message that a receive with these arguments would get. Returns
 * PSC_INPROGRESS if none has arrived. */
psc_status_t psc_recv_iprobe(psc_worker_t *worker, const psc_recv_args_t *args,
                             psc_result_t *result_p);
/* The same, with a request that is done when such a message has arrived. */
psc_status_t psc_recv_probe(psc_worker_t *worker, const psc_recv_args_t *args,
                            psc_result_t *result_p, psc_request_t **request_p);
/* Cancel a request that has not begun, or a receive whose message has not
 * reached its buffer; that message is put back. Returns PSC_ERR_INVALID if the
 * operation has gone too far, and PSC_INPROGRESS if the peer may be writing
 * into the receive's memory: the receive ends with PSC_ERR_CANCELLED when its
 * protocol calls psc_recv_returned. */
psc_status_t psc_recv_cancel(psc_req_t *req);
/* Put a message back to its old place among the unexpected messages, or give it
 * to a receive that waits for it, or drop it if its number is closed. Returns
 * PSC_ERR_NO_MEMORY if the message was lost. */
psc_status_t psc_recv_put_back(psc_unexp_t *unexp);
/* The protocol that had the receive, which is in stage LANDING, gives it back,
 * and nobody writes into its memory any more: give the receive the message that
 * was put back, if there is one; otherwise end the receive. */
void psc_recv_returned(psc_req_t *req);

/* ---- requeue.c ---- */

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

/* ---- refuse.c ---- */

/* Refusing announced messages: a connection that is being closed here receives
 * no more of them. */

/* Send FINs with PSC_ERR_CLOSED for the peer's announced messages that have no
 * receive, as far as the lane takes them, so that the peer's sends end. Without
 * them two sides that both close would wait for each other's receives. Messages
 * that a receive has matched, and those that have arrived completely, stay.
 * Returns true if anything was sent. */
bool psc_refuse_announced(psc_conn_t *conn);
