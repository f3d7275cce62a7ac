/* A user's active messages. They travel as messages of a context of their own,
 * so that eager, rendezvous and credits serve them too; the tag is the id, and
 * the payload is the user's header followed by the user's payload. They are not
 * matched but passed to a handler or queued for Python. Messages that have not
 * been polled count against the bound of unexpected messages. Beyond the bound
 * credit is withheld, and an announced message is fetched only when enough
 * messages have been polled (am_announced.h). If all messages have been polled,
 * an announced message is fetched even if it exceeds the bound by itself. */
#pragma once

#include "am_node.h"
#include "protocol.h"

#define PSC_AM_USER_HEADER_MAX UINT16_MAX

void psc_am_begin(psc_worker_t *worker);
psc_status_t psc_am_set_handler(psc_worker_t *worker, uint32_t id,
                                psc_am_handler_t handler, void *arg);

/* ---- arriving ---- */

/* Allocate memory for a message that arrives, and count it as unexpected.
 * Returns NULL if memory is short. */
am_node_t *psc_am_node_create(psc_conn_t *conn, uint32_t id, size_t header_len,
                              uint64_t len);
/* Stop counting the message as unexpected, and return its credit. */
void psc_am_node_release(psc_worker_t *worker, am_node_t *node);
/* Do what psc_am_node_release does, and free the message. */
void psc_am_node_drop(psc_worker_t *worker, am_node_t *node);
/* Pass a complete message to its handler. Returns true if it was queued for
 * psc_am_poll instead. */
bool psc_am_hand_over(psc_conn_t *conn, am_node_t *node);
/* The functions of the table psc_am (am_post.c); protocol.h says what each is
 * for. The credit of a message is returned at once, or when it is polled. */
psc_status_t psc_am_deliver(psc_conn_t *conn, const psc_message_head_t *head,
                            const void *data, uint64_t len);
psc_status_t psc_am_begin_payload(psc_lane_t *lane,
                                  const psc_message_head_t *head, uint64_t len,
                                  psc_dest_t *dest);
void psc_am_end_payload(psc_lane_t *lane);
void psc_am_lane_ended(psc_lane_t *lane);
void psc_am_handlers_destroy(psc_worker_t *worker);
