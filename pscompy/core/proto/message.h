/* The operations on messages: send, receive, probe, cancel. With the worker's
 * lock held; api.c adds the lock. */
#ifndef PSCOMPY_PROTO_MESSAGE_H
#define PSCOMPY_PROTO_MESSAGE_H

#include "eager.h"

/* aux: length of an active message's header, 0 for messages. */
/* The way of most messages: nothing queued, credit there, small enough to be
 * copied. No request is made; NO_RESOURCE: it has to go the long way. */
psc_status_t psc_message_send_now(psc_conn_t *conn, const psc_send_args_t *args,
                                  uint16_t aux);
psc_status_t psc_message_send(psc_conn_t *conn, const psc_send_args_t *args,
                              uint16_t aux, psc_request_t **request_p);
/* It would be eager, but for want of credit. */
bool psc_message_starved(const psc_conn_t *conn, const psc_send_args_t *args);
psc_status_t psc_message_send_progress(psc_req_t *req); /* stage SEND */
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
/* Takes back what has not begun, and a receive whose message has not reached
 * its buffer; that message goes back to its place. INVALID: too late. */
psc_status_t psc_message_cancel(psc_req_t *req);
/* A message takes its old place again, or meets a receive that waits for it.
 * NO_MEMORY: it is gone. */
psc_status_t psc_message_put_back(psc_unexp_t *unexp);

#endif
