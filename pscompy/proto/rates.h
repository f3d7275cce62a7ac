/* The times of long messages as they arrive. The cost model's estimates are
 * measured by a process alone; how far the peer's core is, and whether a
 * message is still in the peer's cache, only shows in these times. */
#pragma once

#include "../core/types/connection.h"

/* Call when the connection's lanes are known. */
void psc_rates_start(psc_conn_t *conn);
/* A message of `len` bytes begins to arrive. Returns the time, or -1 if the
 * message is not timed: a get is timed only if no other is in flight. */
int64_t psc_rates_begin_copy(psc_conn_t *conn, uint64_t len);
int64_t psc_rates_begin_get(psc_conn_t *conn, uint64_t len);
/* Returns true if this message, which is longer than eager_max, is to be sent
 * eagerly nevertheless. Without such messages nobody would know the time of a
 * copy if all messages are longer than eager_max, and an estimate that is too
 * high would never be corrected. */
bool psc_rates_tries(const psc_conn_t *conn, uint64_t len);
/* A message that is longer than eager_max has left, eagerly or announced. */
void psc_rates_sent(psc_conn_t *conn, uint64_t len);
/* A message has arrived completely; began: the result of psc_rates_begin_copy
 * or psc_rates_begin_get for this message. */
void psc_rates_end_copy(psc_conn_t *conn, uint64_t len, int64_t began);
void psc_rates_end_get(psc_conn_t *conn, uint64_t len, int64_t began);
