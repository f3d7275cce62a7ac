/* Connections: their states, their queued work, and flushing. */
#pragma once

#include "types/connection.h"

/* ---- conn_queue.c ---- */

/* Queueing of a connection's work; conn_flush.c sends it. */

/* Queue a request for the next psc_conn_flush, behind others that wait for the
 * same resource (psc_work_kind_t). */
void psc_conn_queue(psc_conn_t *conn, psc_req_t *req);
void psc_conn_mark_busy(psc_conn_t *conn);

/* ---- conn.c ---- */

/* Connections: creation, state, and the ways in which they end. With the lock
 * held; control.h has the functions for the control plane. */

/* The only function that changes a connection's state. */
void psc_conn_state_set(psc_conn_t *conn, psc_conn_state_t state);
/* Returns the status of a new operation: PSC_OK if it may start or queue. */
psc_status_t psc_conn_usable(const psc_conn_t *conn);
/* Free the destroyed connections that are not in use any more. */
void psc_conn_reap(psc_worker_t *worker);
/* Free all connections, even those in use: the worker ends. */
void psc_conn_destroy_all(psc_worker_t *worker);
/* Drop the connection's lane of a call (control.h) that has not come up, if
 * there is one. */
void psc_call_drop(psc_conn_t *conn);
void psc_conn_retire_lanes(psc_conn_t *conn);
void psc_conn_fail_locked(psc_conn_t *conn, psc_status_t status);
/* End a connection whose last usable lane has failed with this status. */
void psc_conn_lost(psc_conn_t *conn, psc_status_t status);
void psc_conn_close_received(psc_conn_t *conn, bool is_ack);

/* ---- conn_control.c ---- */

/* Functions of psc_api_t; those for the control plane are in control.h. */

psc_status_t psc_conn_open(psc_conn_t *conn, uint32_t flags);
void psc_conn_error(psc_conn_t *conn, char *text, size_t room);

/* ---- conn_flush.c ---- */

/* A connection's queued work: requests that wait to be sent, credits to report,
 * and the close messages of a connection that ends normally. */

/* Send queued work as far as the lanes accept it. Returns true if anything was
 * sent or advanced. */
bool psc_conn_flush(psc_conn_t *conn);
/* Flush each busy connection of the worker, also those that become busy
 * meanwhile, even again. Returns how often anything of a connection was sent or
 * advanced. */
unsigned psc_conns_flush(psc_worker_t *worker);
