/* Connections, the nodes at their ends, and the gateways of other modules. */
#pragma once

#include "hub.h"

/* The connection that leads to a node, or NULL. The caller ends its use with
 * hub_peer_drop. */
hub_peer_t *hub_find(gw_hub_t *hub, uint64_t node, uint32_t module);
hub_peer_t *hub_peer_of(gw_hub_t *hub, const psc_conn_t *conn);
void hub_peer_drop(hub_peer_t *peer);
/* Registers `node` as the other end of this connection. */
void hub_register(gw_hub_t *hub, psc_conn_t *conn, uint64_t node,
                  uint32_t module);
void hub_tables_destroy(gw_hub_t *hub);

/* CDEF BEGIN */
/* Adds a connection of a fabric that has come up; `key` names it from now
 * on. */
int gw_hub_join(gw_hub_t *hub, uint32_t fabric, uintptr_t conn, uint64_t key);
/* Removes a connection that has ended; no thread uses it after this call. */
void gw_hub_leave(gw_hub_t *hub, uint64_t key);
/* Registers gateway `node` as the other end of the connection, and sends our
 * node number, `ours`, to it. */
void gw_hub_greet(gw_hub_t *hub, uint64_t key, uint64_t node, uint64_t ours);
/* Adds gateway `node` to those that packets to a module may be sent to. Has no
 * effect if there is no connection to it (yet). */
void gw_hub_way(gw_hub_t *hub, uint64_t node, uint32_t module);
void gw_hub_forget_ways(gw_hub_t *hub);
/* Records the load that neighbouring gateway `node` has reported. */
void gw_hub_set_load(gw_hub_t *hub, uint64_t node, uint64_t bytes);
/* CDEF END */
