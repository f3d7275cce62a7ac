/* A user's active messages: they travel as messages of a context of their own
 * (so eager, rendezvous and credits serve them too), tag = id, payload =
 * header and payload in a row, and are handed to a handler or queued for
 * Python instead of being matched. Those that nobody has polled count against
 * the bound of unexpected messages: beyond it credit is withheld, and what is
 * announced waits as a record, unless there is no other. */
#ifndef PSCOMPY_PROTO_AM_H
#define PSCOMPY_PROTO_AM_H

#include "rndv.h"

#define PSC_AM_USER_HEADER_MAX UINT16_MAX

/* A complete one has arrived eagerly; its credit is returned here, or when it
 * is polled. */
psc_status_t psc_am_deliver(psc_conn_t *conn, uint32_t id, uint16_t header_len,
                            const void *data, uint64_t len);
/* One whose payload is still to come, into memory of its own: begun, ended, or
 * given up. */
psc_status_t psc_am_begin(psc_lane_t *lane, uint32_t id, uint16_t header_len,
                          uint64_t len, psc_dest_t *dest);
void psc_am_end(psc_lane_t *lane);
void psc_am_abort(psc_lane_t *lane);
/* A large one was announced: fetch it, now or when there is room. */
psc_status_t psc_am_announced(psc_conn_t *conn, uint16_t header_len,
                              const psc_offer_t *offer);
psc_status_t psc_am_set_handler(psc_worker_t *worker, uint32_t id,
                                psc_am_handler_t handler, void *arg);
psc_message_t *psc_am_poll(psc_worker_t *worker);
void psc_am_message_free(psc_message_t *message);
/* am_post: any thread, any worker's handler; see api.h. */
psc_status_t psc_am_post(psc_conn_t *conn, uint32_t id, const void *header,
                         size_t header_len, const void *payload, size_t len);
/* What am_post left for the owner of the lock. */
void psc_am_inbox_drain(psc_worker_t *worker);
/* Forget what it has announced. */
void psc_am_conn_ended(psc_conn_t *conn);
void psc_am_worker_destroy(psc_worker_t *worker);

#endif
