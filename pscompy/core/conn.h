/* Connections: creation, state, and the ways in which they end. With the lock
 * held; control.h has the functions for the control plane. */
#pragma once

#include "types/connection.h"

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
