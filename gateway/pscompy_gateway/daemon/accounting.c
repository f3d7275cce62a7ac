/* Counts the streams (packets from one node to another) that pass this gateway,
 * and collects the numbers that the gateway reports. */
#include "hub.h"

#include <stdlib.h>

static psc_list_t *stream_bucket(gw_hub_t *hub, uint64_t from, uint64_t to)
{
    uint64_t mixed = (from ^ to * 3) * 0x9e3779b97f4a7c15u;

    return &hub->streams[(mixed >> 32) % HUB_STREAM_BUCKETS];
}

static hub_stream_t *stream_find(gw_hub_t *hub, uint64_t from, uint64_t to)
{
    psc_list_for_each(stream, stream_bucket(hub, from, to), hub_stream_t,
                      link) {
        if (stream->from == from && stream->to == to)
            return stream;
    }
    return NULL;
}

static void stream_drop(gw_hub_t *hub, hub_stream_t *stream)
{
    psc_list_remove(&stream->link);
    hub->n_streams--;
    free(stream);
}

static void stream_add(gw_hub_t *hub, uint64_t from, uint64_t to, uint64_t len)
{
    hub_stream_t *stream = stream_find(hub, from, to);

    if (!stream && hub->n_streams < HUB_STREAMS_MAX) {
        stream = calloc(1, sizeof *stream);
        if (!stream)
            return;
        stream->from = from;
        stream->to = to;
        psc_list_push(stream_bucket(hub, from, to), &stream->link);
        hub->n_streams++;
    }
    if (!stream)
        return;
    atomic_fetch_add(&stream->packets, 1);
    atomic_fetch_add(&stream->bytes, len);
}

void hub_stream_count(gw_hub_t *hub, const gw_head_t *head, uint64_t len)
{
    hub_stream_t *stream;
    bool full;

    if (head->kind != GW_DATA)
        return;
    pthread_rwlock_rdlock(&hub->tables);
    stream = stream_find(hub, head->from_node, head->to_node);
    if (stream) {
        atomic_fetch_add(&stream->packets, 1);
        atomic_fetch_add(&stream->bytes, len);
    }
    full = hub->n_streams >= HUB_STREAMS_MAX;
    pthread_rwlock_unlock(&hub->tables);
    if (stream || full)
        return;
    pthread_rwlock_wrlock(&hub->tables);
    stream_add(hub, head->from_node, head->to_node, len);
    pthread_rwlock_unlock(&hub->tables);
}

static void streams_forget(gw_hub_t *hub, uint64_t node, bool all)
{
    for (uint32_t i = 0; i < HUB_STREAM_BUCKETS; i++) {
        psc_list_for_each(stream, &hub->streams[i], hub_stream_t, link) {
            if (all || stream->from == node || stream->to == node)
                stream_drop(hub, stream);
        }
    }
}

void hub_streams_forget(gw_hub_t *hub, uint64_t node)
{
    if (node && hub->n_streams > 0)
        streams_forget(hub, node, false);
}

void hub_streams_destroy(gw_hub_t *hub)
{
    streams_forget(hub, 0, true);
}

/* Returns the bytes in flight to a peer, but at most as many as were sent to it
 * since the last call: bytes that are queued for a stalled receiver are no
 * load, because they delay no other receiver. */
static uint64_t load_of_peer(hub_peer_t *peer)
{
    uint64_t left = atomic_load(&peer->left), held = atomic_load(&peer->held);
    uint64_t moved = left - peer->left_before;

    peer->left_before = left;
    return held < moved ? held : moved;
}

static bool stream_moved(hub_stream_t *stream)
{
    uint64_t packets = atomic_load(&stream->packets);
    bool moved = packets != stream->packets_before;

    stream->packets_before = packets;
    return moved;
}

void gw_hub_load(gw_hub_t *hub, gw_load_t *load)
{
    *load = (gw_load_t){0};
    pthread_rwlock_rdlock(&hub->tables);
    psc_list_for_each(peer, &hub->peers, hub_peer_t, link)
        load->bytes += load_of_peer(peer);
    for (uint32_t i = 0; hub->n_streams > 0 && i < HUB_STREAM_BUCKETS; i++) {
        psc_list_for_each(stream, &hub->streams[i], hub_stream_t, link)
            load->streams += stream_moved(stream);
    }
    pthread_rwlock_unlock(&hub->tables);
}

int gw_hub_streams(gw_hub_t *hub, gw_stream_counters_t *streams, int max)
{
    int n = 0;

    pthread_rwlock_rdlock(&hub->tables);
    for (uint32_t i = 0; hub->n_streams > 0 && i < HUB_STREAM_BUCKETS; i++) {
        psc_list_for_each(stream, &hub->streams[i], hub_stream_t, link) {
            if (n < max)
                streams[n] = (gw_stream_counters_t){
                    .from_node = stream->from,
                    .to_node = stream->to,
                    .packets = atomic_load(&stream->packets),
                    .bytes = atomic_load(&stream->bytes)};
            n++;
        }
    }
    pthread_rwlock_unlock(&hub->tables);
    return n;
}

void gw_hub_count(gw_hub_t *hub, gw_hub_counters_t *counters)
{
    *counters = (gw_hub_counters_t){
        .packets = atomic_load(&hub->packets),
        .bytes = atomic_load(&hub->bytes),
        .dropped = atomic_load(&hub->dropped),
        .unreachable = atomic_load(&hub->unreachable),
        .held = atomic_load(&hub->held),
        .held_most = atomic_load(&hub->held_most),
    };
}

static void count_peer(const hub_peer_t *peer, gw_peer_counters_t *to)
{
    *to = (gw_peer_counters_t){
        .node = peer->node,
        .module = peer->module,
        .fabric = peer->fabric,
        .held = atomic_load(&peer->held),
        .dropped = atomic_load(&peer->dropped),
        .in_packets = atomic_load(&peer->in_packets),
        .in_bytes = atomic_load(&peer->in_bytes),
        .out_packets = atomic_load(&peer->out_packets),
        .out_bytes = atomic_load(&peer->out_bytes),
    };
}

int gw_hub_peers(gw_hub_t *hub, gw_peer_counters_t *peers, int max)
{
    int n = 0;

    pthread_rwlock_rdlock(&hub->tables);
    psc_list_for_each(peer, &hub->peers, hub_peer_t, link) {
        if (n < max)
            count_peer(peer, &peers[n]);
        n++;
    }
    pthread_rwlock_unlock(&hub->tables);
    return n;
}
