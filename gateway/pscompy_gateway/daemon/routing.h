/* Connections, the nodes at their ends, and the gateways of other modules. */
#ifndef GATEWAY_ROUTING_H
#define GATEWAY_ROUTING_H

#include "hub.h"

/* The connection that leads to a node, or NULL. The caller ends its use with
 * hub_peer_drop. */
hub_peer_t *hub_find(gw_hub_t *hub, uint64_t node, uint32_t module);
hub_peer_t *hub_peer_of(gw_hub_t *hub, const psc_conn_t *conn);
void hub_peer_drop(hub_peer_t *peer);
/* `node` is at the other end of this connection. */
void hub_register(gw_hub_t *hub, psc_conn_t *conn, uint64_t node,
                  uint32_t module);
void hub_tables_destroy(gw_hub_t *hub);

/* CDEF BEGIN */
/* A connection of a fabric has come up; `key` names it from now on. */
int gw_hub_join(gw_hub_t *hub, uint32_t fabric, uintptr_t conn, uint64_t key);
/* The connection has ended: it is not touched any more after this call. */
void gw_hub_leave(gw_hub_t *hub, uint64_t key);
/* The connection leads to gateway `node`, which learns that ours is `ours`. */
void gw_hub_greet(gw_hub_t *hub, uint64_t key, uint64_t node, uint64_t ours);
/* Packets to a module may go to this gateway; without effect if there is no
 * connection to it (yet). */
void gw_hub_way(gw_hub_t *hub, uint64_t node, uint32_t module);
void gw_hub_forget_ways(gw_hub_t *hub);
/* A neighbouring gateway has reported its load. */
void gw_hub_set_load(gw_hub_t *hub, uint64_t node, uint64_t bytes);
/* CDEF END */

#endif
