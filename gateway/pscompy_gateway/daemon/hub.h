/* The hub, which is the gateway's data path: a packet that arrives on one
 * connection leaves on another. Each fabric has one thread, which does not hold
 * the GIL. The gateway may drop any packet, for example when it has no room for
 * it; the sending process retransmits it. This header has the structures of the
 * hub, and the functions of each file in this folder. Python calls the
 * functions between CDEF BEGIN and CDEF END. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "pscompy/core/api.h"
#include "pscompy/transport/kit/list.h"
#include "../wire.h"

#define HUB_FABRICS_MAX 16u
#define HUB_NODE_BUCKETS 1024u
#define HUB_MODULE_BUCKETS 64u
#define HUB_EARLY_MAX 256u
#define HUB_STREAM_BUCKETS 4096u
/* maximum number of streams (pairs of nodes) whose packets are counted */
#define HUB_STREAMS_MAX 65536u

typedef struct gw_hub gw_hub_t;

/* A connection, to a process or to another gateway. */
typedef struct hub_peer {
    psc_link_t node_link, conn_link, link;
    pthread_mutex_t lock; /* protects conn: the connection is not freed while a
                             thread holds the lock */
    atomic_uint refs;
    psc_conn_t *conn; /* NULL once the connection has ended */
    uint64_t key; /* number by which the Python code names the connection */
    uint64_t node; /* number of the process or gateway at the other end; 0
                      until it has registered */
    uint32_t fabric, module;
    atomic_ullong held; /* bytes in flight to the peer */
    atomic_ullong in_packets, in_bytes, out_packets, out_bytes, dropped;
    atomic_ullong left; /* bytes sent to the peer */
    uint64_t left_before; /* `left` at the last gw_hub_load */
    atomic_ullong load; /* load that the peer, if a gateway, has reported */
} hub_peer_t;

/* Traffic from one node to another. */
typedef struct hub_stream {
    psc_link_t link;
    uint64_t from, to;
    atomic_ullong packets, bytes;
    uint64_t packets_before; /* `packets` at the last gw_hub_load */
} hub_stream_t;

/* A packet that is being sent to `peer`. */
typedef struct hub_job {
    struct hub_job *next;
    psc_message_t *message;
    psc_worker_t *origin; /* the worker that received the message */
    hub_peer_t *peer;
    uint64_t len;
} hub_job_t;

typedef struct hub_fabric {
    psc_worker_t *worker;
    atomic_bool ended;
} hub_fabric_t;

/* The registration of a node that arrived before Python added its connection by
 * gw_hub_join. */
typedef struct hub_early {
    const psc_conn_t *conn; /* the pointer is only compared, never
                               dereferenced */
    uint64_t node;
    uint32_t module;
} hub_early_t;

/* A route: packets to processes of `module`, a part of the machine, may be sent
 * to the gateway `peer`. */
typedef struct hub_route {
    psc_link_t link;
    uint32_t module;
    hub_peer_t *peer;
} hub_route_t;

struct gw_hub {
    const psc_api_t *api;
    pthread_rwlock_t tables; /* protects the lists below, and `early` */
    psc_list_t nodes[HUB_NODE_BUCKETS];
    psc_list_t conns[HUB_NODE_BUCKETS];
    psc_list_t routes[HUB_MODULE_BUCKETS];
    psc_list_t streams[HUB_STREAM_BUCKETS];
    psc_list_t peers;
    uint32_t n_streams;
    hub_fabric_t fabrics[HUB_FABRICS_MAX];
    uint32_t n_fabrics;
    /* ring of the latest registrations whose connection Python has not added
     * yet */
    hub_early_t early[HUB_EARLY_MAX];
    uint32_t next_early;
    /* maximum number of bytes in flight: to all connections (`bound`), and to
     * one connection (`share`) */
    uint64_t bound, share;
    atomic_ullong held, held_most, packets, bytes, dropped, unreachable;
    atomic_bool stopping;
};

/* ---- accounting.c: what a gateway reports: streams, load, counters ---- */

void hub_stream_count(gw_hub_t *hub, const gw_head_t *head, uint64_t len);
/* Removes the streams of a node that has left. The caller holds the lock
 * `tables` for writing. */
void hub_streams_forget(gw_hub_t *hub, uint64_t node);
void hub_streams_destroy(gw_hub_t *hub);

/* CDEF BEGIN */
typedef struct gw_stream_counters {
    uint64_t from_node, to_node, packets, bytes;
} gw_stream_counters_t;

typedef struct gw_load {
    uint64_t bytes; /* bytes in flight to receivers that are not stalled */
    uint64_t streams; /* pairs of nodes with traffic since the last call of
                         gw_hub_load */
} gw_load_t;

typedef struct gw_hub_counters {
    uint64_t packets, bytes, dropped, unreachable, held, held_most;
} gw_hub_counters_t;

typedef struct gw_peer_counters {
    uint64_t node, module, fabric, held, dropped;
    uint64_t in_packets, in_bytes, out_packets, out_bytes;
} gw_peer_counters_t;

/* Stores the load of this gateway since the last call of this function. */
void gw_hub_load(gw_hub_t *hub, gw_load_t *load);
/* gw_hub_streams and gw_hub_peers fill at most `max` entries, and return the
 * number that exists. */
int gw_hub_streams(gw_hub_t *hub, gw_stream_counters_t *streams, int max);
int gw_hub_peers(gw_hub_t *hub, gw_peer_counters_t *peers, int max);
void gw_hub_count(gw_hub_t *hub, gw_hub_counters_t *counters);
/* CDEF END */

/* ---- routing.c: connections, nodes, gateways of other modules ---- */

/* Returns the connection to a node, or else to a gateway that leads to the
 * node's module, or NULL if there is neither. The caller releases the reference
 * with hub_peer_drop. */
hub_peer_t *hub_find(gw_hub_t *hub, uint64_t node, uint32_t module);
hub_peer_t *hub_peer_of(gw_hub_t *hub, const psc_conn_t *conn);
void hub_peer_drop(hub_peer_t *peer);
/* Registers `node` as the other end of this connection. */
void hub_register(gw_hub_t *hub, psc_conn_t *conn, uint64_t node,
                  uint32_t module);
void hub_tables_destroy(gw_hub_t *hub);

/* CDEF BEGIN */
typedef struct gw_hub_way {
    uint64_t node;
    uint32_t module;
} gw_hub_way_t;

/* Adds an established connection of a fabric; later calls name the connection
 * by `key`. */
int gw_hub_join(gw_hub_t *hub, uint32_t fabric, uintptr_t conn, uint64_t key);
/* Removes a connection that has ended; no thread uses it after this call. */
void gw_hub_leave(gw_hub_t *hub, uint64_t key);
/* Registers gateway `node` as the other end of the connection, and sends the
 * node number of this gateway, `ours`, to it. */
void gw_hub_greet(gw_hub_t *hub, uint64_t key, uint64_t node, uint64_t ours);
/* Replaces all routes: packets to processes of ways[i].module may be sent to
 * gateway ways[i].node. Ways to gateways that have no connection (yet) have no
 * effect. */
void gw_hub_set_ways(gw_hub_t *hub, const gw_hub_way_t *ways, uint32_t n);
/* Records the load that neighbouring gateway `node` has reported. */
void gw_hub_set_load(gw_hub_t *hub, uint64_t node, uint64_t bytes);
/* CDEF END */

/* ---- forward.c: forwarding packets ---- */

/* Called when a send request that hub_forward made has completed. */
void hub_finished(gw_hub_t *hub, psc_request_t *request);

/* CDEF BEGIN */
/* Forwards the packets of a fabric until gw_hub_stop. */
void gw_hub_serve(gw_hub_t *hub, uint32_t fabric);
/* CDEF END */

/* ---- lifetime.c: creating, stopping and destroying a hub ---- */

/* CDEF BEGIN */
/* Creates a hub. api: address of the psc_api_t; bound: maximum number of bytes
 * in flight to all connections; share: maximum number to one connection. */
gw_hub_t *gw_hub_create(uintptr_t api, uint64_t bound, uint64_t share);
/* Destroys the hub. To be called after every thread has left gw_hub_serve and
 * all connections have ended, while the workers still exist. Waits until the
 * fabrics have released the memory of all packets; if this takes longer than
 * two seconds, the hub is not freed. */
void gw_hub_destroy(gw_hub_t *hub);
/* Adds a fabric, given its worker. Returns the number of the fabric, or a
 * negative status. */
int gw_hub_fabric(gw_hub_t *hub, uintptr_t worker);
void gw_hub_stop(gw_hub_t *hub);
/* CDEF END */
