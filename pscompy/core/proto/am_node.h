/* The memory of active messages that are queued, on their way in, or on their
 * way out; am.c and am_post.c share it. */
#ifndef PSCOMPY_PROTO_AM_NODE_H
#define PSCOMPY_PROTO_AM_NODE_H

#include "../types/conn.h"

/* A message in memory of its own: queued for Python, or on its way out. */
typedef struct am_node {
    psc_message_t message; /* first: message_free gets it */
    psc_link_t link;
    psc_conn_t *conn;
    struct am_node *next; /* inbox, idle */
    uint64_t kept;        /* bytes that count against the session's bound */
    uint32_t owed;        /* credit to return when it is polled */
    uint8_t size_class;   /* PSC_AM_CLASSES: none */
    _Alignas(16) uint8_t data[];
} am_node_t;

/* Memory for a message of so many bytes, not filled in; NULL: out of memory.
 * Any thread. */
am_node_t *psc_am_node_alloc(uint64_t len);
/* The same, from memory that is kept. With the worker's lock, as is free. */
am_node_t *psc_am_node_reuse(psc_worker_t *worker, uint64_t len);
void psc_am_node_free(psc_worker_t *worker, am_node_t *node);
/* What it is a message of; its data follows. NULL stays NULL. */
am_node_t *psc_am_node_fill(am_node_t *node, psc_conn_t *conn, uint32_t id,
                            size_t header_len, uint64_t len);
/* Free what is kept; from then on nothing is. */
void psc_am_nodes_destroy(psc_worker_t *worker);

#endif
