/* The hub, which is the gateway's data path: a packet that arrives on one
 * connection leaves on another. One thread per fabric, without the GIL. The
 * gateway may drop any packet, for example when it has no room for it; the
 * sending process retransmits it. This header has the structures; the files
 * beside it work on them. */
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
/* packets of further streams are not counted */
#define HUB_STREAMS_MAX 65536u

typedef struct gw_hub gw_hub_t;

/* A connection, to a process or to another gateway. */
typedef struct hub_peer {
    psc_link_t node_link, conn_link, link;
    pthread_mutex_t
        lock; /* protects conn, which is not freed while it is held */
    atomic_uint refs;
    psc_conn_t *conn; /* NULL once the connection has ended */
    uint64_t key;     /* the connection's number in Python */
    uint64_t node;    /* 0 until the node has registered */
    uint32_t fabric, module;
    atomic_ullong held; /* bytes in flight to the peer */
    atomic_ullong in_packets, in_bytes, out_packets, out_bytes, dropped;
    atomic_ullong left;   /* bytes sent to the peer */
    uint64_t left_before; /* `left` at the last gw_hub_load */
    atomic_ullong load;   /* load that the peer, a gateway, has reported */
} hub_peer_t;

/* Traffic from one node to another. */
typedef struct hub_stream {
    psc_link_t link;
    uint64_t from, to;
    atomic_ullong packets, bytes;
    uint64_t packets_before; /* `packets` at the last gw_hub_load */
} hub_stream_t;

/* A packet in flight to `peer`. */
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

/* A node that registered before Python reported its connection. */
typedef struct hub_early {
    const psc_conn_t *conn; /* compared, never dereferenced */
    uint64_t node;
    uint32_t module;
} hub_early_t;

/* A gateway that packets to a module may go to. */
typedef struct hub_route {
    psc_link_t link;
    uint32_t module;
    hub_peer_t *peer;
} hub_route_t;

struct gw_hub {
    const psc_api_t *api;
    pthread_rwlock_t tables; /* protects the lists below */
    psc_list_t nodes[HUB_NODE_BUCKETS];
    psc_list_t conns[HUB_NODE_BUCKETS];
    psc_list_t routes[HUB_MODULE_BUCKETS];
    psc_list_t streams[HUB_STREAM_BUCKETS];
    psc_list_t peers;
    uint32_t n_streams;
    hub_fabric_t fabrics[HUB_FABRICS_MAX];
    uint32_t n_fabrics;
    hub_early_t early[HUB_EARLY_MAX]; /* ring of the latest registrations */
    uint32_t next_early;
    uint64_t bound, share; /* most bytes held: in all, per connection */
    atomic_ullong held, held_most, packets, bytes, dropped, unreachable;
    atomic_bool stopping;
};
