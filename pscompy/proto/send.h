/* Sending messages: each tries the protocols of list.c in their order. Called
 * with the worker's lock held; api_message.c takes it. */
#pragma once

#include "../core/types/connection.h"

/* In the next functions `aux` is the header length of an active message, 0 for
 * other messages. */
/* Send at once without a request, if nothing is queued, there is credit, and
 * the message is small enough to be copied. Returns PSC_ERR_NO_RESOURCE if
 * psc_send must be used. */
psc_status_t psc_send_now(psc_conn_t *conn, const psc_send_args_t *args,
                          uint16_t aux);
psc_status_t psc_send(psc_conn_t *conn, const psc_send_args_t *args,
                      uint16_t aux, psc_request_t **request_p);
/* Returns true if a progress pass before the send may let the message be sent
 * at once, because the pass may read credit for an eager message, or the
 * ADVERTISE of a receive (tuple_am.h). */
bool psc_send_reads_first(const psc_conn_t *conn, const psc_send_args_t *args);
/* Runs stage SEND: sends or announces the message. */
psc_status_t psc_send_progress(psc_req_t *req);
