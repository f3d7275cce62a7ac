/* The gateway's data path: what comes in on one connection leaves on another,
 * fragment by fragment. One thread per fabric, without the GIL; no packet is
 * ever needed: what there is no room for is dropped, and sent again by its
 * sender. */
#ifndef GATEWAY_HUB_H
#define GATEWAY_HUB_H

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
#define HUB_STREAMS_MAX 65536u /* more are carried, but not counted */

typedef struct gw_hub gw_hub_t;

/* A connection: a process, or another gateway. */
typedef struct hub_peer {
    psc_link_t node_link, conn_link, link;
    pthread_mutex_t lock; /* its connection stays while this is held */
    atomic_uint refs;
    psc_conn_t *conn; /* NULL: it has ended */
    uint64_t key;     /* of Python's */
    uint64_t node;    /* 0: it has not registered one */
    uint32_t fabric, module;
    atomic_ullong held; /* bytes on their way out to it */
    atomic_ullong in_packets, in_bytes, out_packets, out_bytes, dropped;
    atomic_ullong left; /* bytes that have left */
    uint64_t left_before; /* at the last look; see gw_hub_load */
    atomic_ullong load; /* a gateway: what it says that it carries */
} hub_peer_t;

/* What one process sends to another. */
typedef struct hub_stream {
    psc_link_t link;
    uint64_t from, to;
    atomic_ullong packets, bytes;
    uint64_t packets_before; /* at the last look */
} hub_stream_t;

/* A packet on its way out. */
typedef struct hub_job {
    struct hub_job *next;
    psc_message_t *message;
    psc_worker_t *origin;
    hub_peer_t *peer;
    uint64_t len;
} hub_job_t;

typedef struct hub_fabric {
    psc_worker_t *worker;
    atomic_bool ended;
} hub_fabric_t;

/* Whose node was told before Python had told of the connection. */
typedef struct hub_early {
    const psc_conn_t *conn; /* compared, never looked into */
    uint64_t node;
    uint32_t module;
} hub_early_t;

/* A module's next gateway. */
typedef struct hub_route {
    psc_link_t link;
    uint32_t module;
    hub_peer_t *peer;
} hub_route_t;

struct gw_hub {
    const psc_api_t *api;
    pthread_rwlock_t tables;
    psc_list_t nodes[HUB_NODE_BUCKETS];
    psc_list_t conns[HUB_NODE_BUCKETS];
    psc_list_t routes[HUB_MODULE_BUCKETS];
    psc_list_t streams[HUB_STREAM_BUCKETS];
    psc_list_t peers;
    uint32_t n_streams;
    hub_fabric_t fabrics[HUB_FABRICS_MAX];
    uint32_t n_fabrics;
    hub_early_t early[HUB_EARLY_MAX]; /* the latest ones */
    uint32_t next_early;
    uint64_t bound, share; /* bytes held in all, and for one connection */
    atomic_ullong held, held_most, packets, bytes, dropped, unreachable;
    atomic_bool stopping;
};

/* ---- forward.c ---- */

void hub_forward(gw_hub_t *hub, hub_fabric_t *fabric, psc_message_t *message);
void hub_finished(gw_hub_t *hub, psc_request_t *request);

/* ---- tables.c ---- */

/* The connection that leads to a node; counted, NULL: none. */
hub_peer_t *hub_find(gw_hub_t *hub, uint64_t node, uint32_t module);
hub_peer_t *hub_peer_of(gw_hub_t *hub, const psc_conn_t *conn);
void hub_register(gw_hub_t *hub, psc_conn_t *conn, uint64_t node,
                  uint32_t module);
void hub_peer_drop(hub_peer_t *peer);

/* ---- streams.c ---- */

void hub_stream_count(gw_hub_t *hub, const gw_head_t *head, uint64_t len);
/* With the tables locked for writing: a node has left. */
void hub_streams_forget(gw_hub_t *hub, uint64_t node);
void hub_streams_destroy(gw_hub_t *hub);

/* CDEF BEGIN */
typedef struct gw_stream_counters {
    uint64_t from_node, to_node, packets, bytes;
} gw_stream_counters_t;

typedef struct gw_load {
    uint64_t bytes;   /* that wait here for receivers who take them */
    uint64_t streams; /* that something came of */
} gw_load_t;

typedef struct gw_hub_counters {
    uint64_t packets, bytes, dropped, unreachable, held, held_most;
} gw_hub_counters_t;

typedef struct gw_peer_counters {
    uint64_t node, module, fabric, held, dropped;
    uint64_t in_packets, in_bytes, out_packets, out_bytes;
} gw_peer_counters_t;

/* bound, share: bytes held in all, and for one connection. */
gw_hub_t *gw_hub_create(uintptr_t api, uint64_t bound, uint64_t share);
void gw_hub_destroy(gw_hub_t *hub);
/* The number of a fabric's worker, or a status. */
int gw_hub_fabric(gw_hub_t *hub, uintptr_t worker);
/* Forward what comes in on it, until gw_hub_stop. */
void gw_hub_serve(gw_hub_t *hub, uint32_t fabric);
void gw_hub_stop(gw_hub_t *hub);
/* A connection of a fabric came up, or has ended: after that it is not touched
 * any more. `key` names it. */
int gw_hub_join(gw_hub_t *hub, uint32_t fabric, uintptr_t conn, uint64_t key);
void gw_hub_leave(gw_hub_t *hub, uint64_t key);
/* A connection leads to a gateway, which is to know us by our own node. */
void gw_hub_greet(gw_hub_t *hub, uint64_t key, uint64_t node, uint64_t ours);
/* Packets to a module may go to this gateway; one that has no connection (yet)
 * is left out. */
void gw_hub_way(gw_hub_t *hub, uint64_t node, uint32_t module);
void gw_hub_forget_ways(gw_hub_t *hub);
/* A neighbouring gateway has told what it carries. */
void gw_hub_told(gw_hub_t *hub, uint64_t node, uint64_t bytes);
/* What we carry, since the last call. */
void gw_hub_load(gw_hub_t *hub, gw_load_t *load);
/* Who talks to whom; how many there are. */
int gw_hub_streams(gw_hub_t *hub, gw_stream_counters_t *streams, int max);
void gw_hub_count(gw_hub_t *hub, gw_hub_counters_t *counters);
/* The connections; how many there are. */
int gw_hub_peers(gw_hub_t *hub, gw_peer_counters_t *peers, int max);
/* CDEF END */

#endif
