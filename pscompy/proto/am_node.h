/* The memory of active messages that are queued, being received, or being sent;
 * am.c and am_post.c share it. */
#pragma once

#include "../core/types/connection.h"

/* A message in memory of its own: queued for Python, or waiting to be sent. */
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
