/* A connection's queued work: requests that wait to be sent, credits to report,
 * and the close messages of a connection that ends normally. */
#pragma once

#include "types/connection.h"

/* Send queued work as far as the lanes accept it. Returns true if anything was
 * sent or advanced. */
bool psc_conn_flush(psc_conn_t *conn);
/* Flush each busy connection of the worker, also those that become busy
 * meanwhile, even again. Returns how often anything of a connection was sent or
 * advanced. */
unsigned psc_conns_flush(psc_worker_t *worker);
