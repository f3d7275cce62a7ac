/* The figures that a gateway reports: streams, load, counters. */
#pragma once

#include "hub.h"

void hub_stream_count(gw_hub_t *hub, const gw_head_t *head, uint64_t len);
/* Removes the streams of a node that has left. The caller holds `tables` for
 * writing. */
void hub_streams_forget(gw_hub_t *hub, uint64_t node);
void hub_streams_destroy(gw_hub_t *hub);

/* CDEF BEGIN */
typedef struct gw_stream_counters {
    uint64_t from_node, to_node, packets, bytes;
} gw_stream_counters_t;

typedef struct gw_load {
    uint64_t bytes;   /* queued here for receivers that are not stalled */
    uint64_t streams; /* pairs of nodes with traffic */
} gw_load_t;

typedef struct gw_hub_counters {
    uint64_t packets, bytes, dropped, unreachable, held, held_most;
} gw_hub_counters_t;

typedef struct gw_peer_counters {
    uint64_t node, module, fabric, held, dropped;
    uint64_t in_packets, in_bytes, out_packets, out_bytes;
} gw_peer_counters_t;

/* Stores the load of this gateway since the last call. */
void gw_hub_load(gw_hub_t *hub, gw_load_t *load);
/* gw_hub_streams and gw_hub_peers fill at most `max` entries, and return the
 * number that exists. */
int gw_hub_streams(gw_hub_t *hub, gw_stream_counters_t *streams, int max);
int gw_hub_peers(gw_hub_t *hub, gw_peer_counters_t *peers, int max);
void gw_hub_count(gw_hub_t *hub, gw_hub_counters_t *counters);
/* CDEF END */
