/* A user's active messages. They travel as messages of a context of their own,
 * so that eager, rendezvous and credits serve them too; the tag is the id, and
 * the payload is the user's header followed by the user's payload. They are not
 * matched but passed to a handler or queued for psc_am_poll. Messages that have
 * not been polled count against the bound of unexpected messages. Beyond the
 * bound credit is withheld, and an announced message is fetched only when
 * enough messages have been polled (am_announced.c). If all messages have been
 * polled, an announced message is fetched even if it exceeds the bound by
 * itself. */
#pragma once

#include "protocol.h"
#include "../core/types/connection.h"
#include "rndv.h"

/* ---- am_node.c ---- */

/* The memory of active messages that are queued, being received, or being sent;
 * am.c and am_post.c share it. */

/* A message in memory of its own: queued for psc_am_poll, or waiting to be
 * sent. */
typedef struct am_node {
    psc_message_t message; /* first: message_free gets a pointer to it */
    psc_link_t link;
    psc_conn_t *conn;
    /* the next node in the worker's am.inbox or am.idle */
    struct am_node *next;
    uint64_t kept; /* bytes of this message that psc_budget_t.kept counts */
    uint32_t owed; /* credit to return when the message is polled */
    /* the node's size class; PSC_AM_CLASSES: the node is not kept for reuse */
    uint8_t size_class;
    _Alignas(16) uint8_t data[];
} am_node_t;

/* Allocate a node for a message of `len` bytes, not filled in. Returns NULL if
 * memory is short. May be called by any thread. */
am_node_t *psc_am_node_alloc(uint64_t len);
/* Take a node that was kept for reuse, or allocate one. Call this function and
 * psc_am_node_free with the worker's lock held. */
am_node_t *psc_am_node_reuse(psc_am_idle_t *idle, uint64_t len);
void psc_am_node_free(psc_am_idle_t *idle, am_node_t *node);
/* Fill in a node's message; the caller copies the data. Returns NULL if node is
 * NULL. */
am_node_t *psc_am_node_fill(am_node_t *node, psc_conn_t *conn, uint32_t id,
                            size_t header_len, uint64_t len);
/* Free the nodes kept for reuse; nodes that are freed later are not kept any
 * more. */
void psc_am_idle_destroy(psc_am_idle_t *idle);

/* ---- am.c ---- */

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

/* ---- am_announced.c ---- */

/* Active messages that are announced by RTS, and polling. Announced messages
 * wait to be fetched while messages that have not been polled or received fill
 * the bound on memory (psc_budget_t). */

/* Keep the record of an announced message as an unexpected one of the context
 * PSC_CONTEXT_AM, and fetch what there is room for (psc_budget_t). */
psc_status_t psc_am_announced(psc_unexp_t *unexp);
psc_message_t *psc_am_poll(psc_worker_t *worker);
void psc_am_message_free(psc_message_t *message);
void psc_am_worker_destroy(psc_worker_t *worker);

/* ---- am_post.c ---- */

/* Active messages that are sent by a handler, or by a thread that does not hold
 * the worker's lock. */

extern const psc_proto_t psc_am;

/* The function am_post of psc_api_t. May be called by any thread, and by the
 * handlers of all workers. */
psc_status_t psc_am_post(psc_conn_t *conn, uint32_t id, const void *header,
                         size_t header_len, const void *payload, size_t len);
