#include "am.h"

#include <stdlib.h>

/* Nodes of the usual sizes are kept for reuse, because malloc gives long pieces
 * of memory back to the system, so that each page of the next piece would cost
 * a page fault. */
/* the size of the first size class; each class doubles it */
#define AM_CLASS_MIN 1024u
/* maximum number of bytes of nodes that a worker keeps for reuse */
#define AM_IDLE_MAX (8u << 20)

static unsigned am_class(uint64_t len)
{
    unsigned class = 0;

    while (class < PSC_AM_CLASSES && len > AM_CLASS_MIN << class)
        class++;
    return class;
}

am_node_t *psc_am_node_alloc(uint64_t len)
{
    unsigned class = am_class(len);
    am_node_t *node;

    if (len > SIZE_MAX - sizeof *node)
        return NULL;
    node =
        malloc(sizeof *node +
               (class < PSC_AM_CLASSES ? (size_t)AM_CLASS_MIN << class : len));
    if (node)
        node->size_class = (uint8_t)class;
    return node;
}

am_node_t *psc_am_node_reuse(psc_am_idle_t *idle, uint64_t len)
{
    unsigned class = am_class(len);
    am_node_t *node = class < PSC_AM_CLASSES ? idle->nodes[class] : NULL;

    if (!node)
        return psc_am_node_alloc(len);
    idle->nodes[class] = node->next;
    idle->bytes -= AM_CLASS_MIN << class;
    return node;
}

void psc_am_node_free(psc_am_idle_t *idle, am_node_t *node)
{
    unsigned class = node->size_class;

    if (class == PSC_AM_CLASSES ||
        idle->bytes + (AM_CLASS_MIN << class) > AM_IDLE_MAX) {
        free(node);
        return;
    }
    node->next = idle->nodes[class];
    idle->nodes[class] = node;
    idle->bytes += AM_CLASS_MIN << class;
}

am_node_t *psc_am_node_fill(am_node_t *node, psc_conn_t *conn, uint32_t id,
                            size_t header_len, uint64_t len)
{
    if (!node)
        return NULL;
    node->conn = conn;
    node->kept = node->owed = 0;
    node->message = (psc_message_t){.source = conn,
                                    .id = id,
                                    .header = node->data,
                                    .header_len = header_len,
                                    .payload = node->data + header_len,
                                    .len = len - header_len};
    return node;
}

void psc_am_idle_destroy(psc_am_idle_t *idle)
{
    am_node_t *node, *next;

    for (int i = 0; i < PSC_AM_CLASSES; i++) {
        for (node = idle->nodes[i]; node; node = next) {
            next = node->next;
            free(node);
        }
        idle->nodes[i] = NULL;
    }
    idle->bytes = AM_IDLE_MAX; /* nodes freed from now on are not kept */
}
