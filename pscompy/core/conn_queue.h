/* Queueing of a connection's work; conn_flush.h sends it. */
#pragma once

#include "types/connection.h"

/* Queue a request for the next psc_conn_flush, behind others that wait for the
 * same resource (psc_work_kind_t). */
void psc_conn_queue(psc_conn_t *conn, psc_req_t *req);
void psc_conn_mark_busy(psc_conn_t *conn);
