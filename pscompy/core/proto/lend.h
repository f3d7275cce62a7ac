/* Lending: the sender hands out the pages of a message themselves.
 *
 *   RTS(LENT, key of the segment, offset) ->
 *      the receive has matched: map the segment, once; a view of it
 *                                  <- TAKEN   if it is not given back at once
 *                                  <- FIN     when the view has died
 *
 * The request of the sender is done with the FIN, or when the connection ends:
 * then nobody there reads any more, or its process is gone. A receiver that
 * ends in order, or has lost the peer, makes the views that are left its own
 * before; so they keep what they show, whatever the sender does. A lent
 * message that is received into a buffer is a rendezvous like any other. */
#ifndef PSCOMPY_PROTO_LEND_H
#define PSCOMPY_PROTO_LEND_H

#include "match.h"

/* Below it a copy is cheaper than the three messages. */
#define PSC_LEND_MIN 4096u

/* ---- the sender ---- */
/* Can this request's pages be lent? Else it is a send like any other. */
bool psc_lend_begin(psc_req_t *req);
psc_status_t psc_lend_taken_arrived(psc_lane_t *lane, const psc_am_t *am);
/* How it ends when its connection does: what was announced is as good as
 * sent. */
psc_status_t psc_lend_outcome(const psc_req_t *req, psc_status_t status);

/* ---- the receiver ---- */
psc_status_t psc_lend_view(psc_req_t *req, psc_view_t **view_p);
psc_status_t psc_lend_send_taken(psc_req_t *req); /* stage SEND_TAKEN */
/* A view has died: any thread, and the worker may have ended. */
void psc_lend_return(psc_view_t *view);
/* Of those that have died tell their owners. */
void psc_lend_drain(psc_worker_t *worker);
/* The last word is about to leave: views become our own. */
void psc_lend_conn_closing(psc_conn_t *conn);
/* A loan whose connection ends. */
void psc_lend_end(psc_req_t *req);
void psc_lend_conn_ended(psc_conn_t *conn);
void psc_lend_worker_destroy(psc_worker_t *worker);

#endif
