/* A connection's queued work: requests that wait to act, credits to tell, and
 * the close messages of a connection that ends normally. */
#ifndef PSCOMPY_CORE_CONN_FLUSH_H
#define PSCOMPY_CORE_CONN_FLUSH_H

#include "types/conn.h"

/* Move what is queued as far as lanes take it; true if anything moved. */
bool psc_conn_flush(psc_conn_t *conn);

#endif
