/* A user's active messages: they travel as messages of a context of their own
 * (so eager, rendezvous and credits serve them too), tag = id, payload =
 * header and payload in a row, and are handed to a handler or queued for
 * Python instead of being matched. Those that nobody has polled count against
 * the bound of unexpected messages: beyond it credit is withheld, and what is
 * announced waits as a record, unless there is no other. */
#ifndef PSCOMPY_PROTO_AM_H
#define PSCOMPY_PROTO_AM_H

#include "am_node.h"

#define PSC_AM_USER_HEADER_MAX UINT16_MAX

psc_status_t psc_am_set_handler(psc_worker_t *worker, uint32_t id,
                                psc_am_handler_t handler, void *arg);

/* ---- arriving ---- */

/* Memory for a message that arrives; it counts from now on. NULL if there is no
 * memory. */
am_node_t *psc_am_node_create(psc_conn_t *conn, uint32_t id, size_t header_len,
                              uint64_t len);
/* The message counts no more, and its credit returns. */
void psc_am_node_release(psc_worker_t *worker, am_node_t *node);
/* The same, and it is freed. */
void psc_am_node_drop(psc_worker_t *worker, am_node_t *node);
/* Hand it to its handler. Returns true if it stays in the queue. */
bool psc_am_hand_over(psc_conn_t *conn, am_node_t *node);
/* A complete message has arrived eagerly; its credit is returned here, or when
 * it is polled. */
psc_status_t psc_am_deliver(psc_conn_t *conn, uint32_t id, uint16_t header_len,
                            const void *data, uint64_t len);
/* A message whose payload is still to come, into memory of its own: begun,
 * ended, or given up. */
psc_status_t psc_am_begin(psc_lane_t *lane, uint32_t id, uint16_t header_len,
                          uint64_t len, psc_dest_t *dest);
void psc_am_end(psc_lane_t *lane);
void psc_am_abort(psc_lane_t *lane);
void psc_am_handlers_destroy(psc_worker_t *worker);

#endif
