/* Connections: their states, their memory, and how they end. With the lock
 * held; control.h has what the control plane calls. */
#ifndef PSCOMPY_CORE_CONN_H
#define PSCOMPY_CORE_CONN_H

#include "types/conn.h"

/* The only function that changes a connection's state. */
void psc_conn_state_set(psc_conn_t *conn, psc_conn_state_t state);
/* The status that a new operation gets, PSC_OK while it may start or queue. */
psc_status_t psc_conn_usable(const psc_conn_t *conn);
/* Free connections that were destroyed and that nothing needs any more. */
void psc_conn_reap(psc_worker_t *worker);
/* Free all, whatever needs them: the worker ends. */
void psc_conn_destroy_all(psc_worker_t *worker);
void psc_conn_retire_lanes(psc_conn_t *conn);
void psc_conn_fail_locked(psc_conn_t *conn, psc_status_t status);
void psc_conn_close_received(psc_conn_t *conn, bool is_ack);

#endif
