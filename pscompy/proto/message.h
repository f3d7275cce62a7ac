/* The operations on messages: send, receive, probe, cancel. Called with the
 * worker's lock held; api_message.c takes it. */
#pragma once

#include "eager.h"

/* In the next functions `aux` is the header length of an active message, 0 for
 * other messages. */
/* Send at once without a request, if nothing is queued, there is credit, and
 * the message is small enough to be copied. Returns PSC_ERR_NO_RESOURCE if
 * psc_message_send must be used. */
psc_status_t psc_message_send_now(psc_conn_t *conn, const psc_send_args_t *args,
                                  uint16_t aux);
psc_status_t psc_message_send(psc_conn_t *conn, const psc_send_args_t *args,
                              uint16_t aux, psc_request_t **request_p);
/* Returns true if a progress pass before the send may let the message be sent
 * at once, because the pass may read credit for an eager message, or the
 * ADVERTISE of a receive (tuple_am.h). */
bool psc_message_reads_first(const psc_conn_t *conn,
                             const psc_send_args_t *args);
/* Runs stage SEND: sends or announces the message. */
psc_status_t psc_message_send_progress(psc_req_t *req);
psc_status_t psc_message_recv(psc_worker_t *worker, const psc_recv_args_t *args,
                              psc_result_t *result_p,
                              psc_request_t **request_p);
psc_status_t psc_message_supply(psc_req_t *req, const psc_iov_t *iov,
                                size_t n_iov);
psc_status_t psc_message_iprobe(psc_worker_t *worker,
                                const psc_recv_args_t *args,
                                psc_result_t *result_p);
psc_status_t psc_message_probe(psc_worker_t *worker,
                               const psc_recv_args_t *args,
                               psc_result_t *result_p,
                               psc_request_t **request_p);
/* Cancel a request that has not begun, or a receive whose message has not
 * reached its buffer; that message is put back. Returns PSC_ERR_INVALID if the
 * operation has gone too far, and PSC_INPROGRESS if the peer may be writing
 * into the receive's memory: the receive ends with PSC_ERR_CANCELLED when the
 * peer has answered CONCEAL (tuple_am.h). */
psc_status_t psc_message_cancel(psc_req_t *req);
/* Put a message back to its old place among the unexpected messages, or give it
 * to a receive that waits for it. Returns PSC_ERR_NO_MEMORY if the message was
 * lost. */
psc_status_t psc_message_put_back(psc_unexp_t *unexp);
/* The protocol that had the receive, which is in stage LANDING, gives it back,
 * and nobody writes into its memory any more: give the receive the message that
 * was put back, if there is one; otherwise end the receive. */
void psc_message_returned(psc_req_t *req);
