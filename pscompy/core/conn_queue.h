/* Queueing a connection's work, for conn_flush.h to move. */
#ifndef PSCOMPY_CORE_CONN_QUEUE_H
#define PSCOMPY_CORE_CONN_QUEUE_H

#include "types/conn.h"

/* Put a request where the next progress moves it on. */
void psc_conn_queue(psc_conn_t *conn, psc_req_t *req, bool urgent);
void psc_conn_mark_busy(psc_conn_t *conn);

#endif
