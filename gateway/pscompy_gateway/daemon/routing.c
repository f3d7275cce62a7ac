/* Tables of connections, of the nodes at their ends, and of the gateways that
 * lead to other modules. */
#include "hub.h"

#include <stdlib.h>

static psc_list_t *table_nodes(gw_hub_t *hub, uint64_t node)
{
    return &hub->nodes[node % HUB_NODE_BUCKETS];
}

static psc_list_t *table_conns(gw_hub_t *hub, const psc_conn_t *conn)
{
    return &hub->conns[(uintptr_t)conn / 64 % HUB_NODE_BUCKETS];
}

static psc_list_t *table_routes(gw_hub_t *hub, uint32_t module)
{
    return &hub->routes[module % HUB_MODULE_BUCKETS];
}

void hub_peer_drop(hub_peer_t *peer)
{
    if (atomic_fetch_sub(&peer->refs, 1) > 1)
        return;
    pthread_mutex_destroy(&peer->lock);
    free(peer);
}

static hub_peer_t *table_hold(hub_peer_t *peer)
{
    if (peer)
        atomic_fetch_add(&peer->refs, 1);
    return peer;
}

static hub_peer_t *table_node(gw_hub_t *hub, uint64_t node)
{
    psc_list_for_each(peer, table_nodes(hub, node), hub_peer_t, node_link) {
        if (peer->node == node)
            return peer;
    }
    return NULL;
}

static uint64_t table_load(const hub_peer_t *peer)
{
    return atomic_load(&peer->held) + atomic_load(&peer->load);
}

/* Returns, of the gateways that lead to a module, the one with the least load:
 * the load that it has reported, and the bytes in flight to it. */
static hub_peer_t *table_module(gw_hub_t *hub, uint32_t module)
{
    hub_peer_t *best = NULL;

    psc_list_for_each(route, table_routes(hub, module), hub_route_t, link) {
        if (route->module == module &&
            (!best || table_load(route->peer) < table_load(best)))
            best = route->peer;
    }
    return best;
}

hub_peer_t *hub_find(gw_hub_t *hub, uint64_t node, uint32_t module)
{
    hub_peer_t *peer;

    pthread_rwlock_rdlock(&hub->tables);
    peer = table_node(hub, node);
    peer = table_hold(peer ? peer : table_module(hub, module));
    pthread_rwlock_unlock(&hub->tables);
    return peer;
}

static hub_peer_t *table_conn(gw_hub_t *hub, const psc_conn_t *conn)
{
    psc_list_for_each(peer, table_conns(hub, conn), hub_peer_t, conn_link) {
        if (peer->conn == conn)
            return peer;
    }
    return NULL;
}

hub_peer_t *hub_peer_of(gw_hub_t *hub, const psc_conn_t *conn)
{
    hub_peer_t *peer;

    pthread_rwlock_rdlock(&hub->tables);
    peer = table_hold(table_conn(hub, conn));
    pthread_rwlock_unlock(&hub->tables);
    return peer;
}

static hub_peer_t *table_key(gw_hub_t *hub, uint64_t key)
{
    psc_list_for_each(peer, &hub->peers, hub_peer_t, link) {
        if (peer->key == key)
            return peer;
    }
    return NULL;
}

/* Registers the connection in front of older connections to the same node,
 * which are about to end, so that table_node finds the new connection. */
static void table_register(gw_hub_t *hub, hub_peer_t *peer, uint64_t node,
                           uint32_t module)
{
    psc_list_remove(&peer->node_link);
    peer->node = node;
    peer->module = module;
    psc_list_push_front(table_nodes(hub, node), &peer->node_link);
}

void hub_register(gw_hub_t *hub, psc_conn_t *conn, uint64_t node,
                  uint32_t module)
{
    hub_peer_t *peer;

    if (!node)
        return;
    pthread_rwlock_wrlock(&hub->tables);
    peer = table_conn(hub, conn);
    if (peer)
        table_register(hub, peer, node, module);
    else
        hub->early[hub->next_early++ % HUB_EARLY_MAX] =
            (hub_early_t){conn, node, module};
    pthread_rwlock_unlock(&hub->tables);
}

static void table_register_early(gw_hub_t *hub, hub_peer_t *peer)
{
    for (uint32_t i = 0; i < HUB_EARLY_MAX; i++) {
        hub_early_t *early = &hub->early[i];

        if (early->conn != peer->conn)
            continue;
        table_register(hub, peer, early->node, early->module);
        early->conn = NULL;
    }
}

int gw_hub_join(gw_hub_t *hub, uint32_t fabric, uintptr_t conn, uint64_t key)
{
    hub_peer_t *peer = calloc(1, sizeof *peer);

    if (!peer)
        return PSC_ERR_NO_MEMORY;
    peer->conn = (psc_conn_t *)conn;
    peer->key = key;
    peer->fabric = fabric;
    atomic_store(&peer->refs, 1);
    pthread_mutex_init(&peer->lock, NULL);
    psc_list_init(&peer->node_link);
    pthread_rwlock_wrlock(&hub->tables);
    psc_list_push(&hub->peers, &peer->link);
    psc_list_push(table_conns(hub, peer->conn), &peer->conn_link);
    table_register_early(hub, peer);
    pthread_rwlock_unlock(&hub->tables);
    return PSC_OK;
}

static void table_forget_routes(gw_hub_t *hub, const hub_peer_t *peer)
{
    for (uint32_t i = 0; i < HUB_MODULE_BUCKETS; i++) {
        psc_list_for_each(route, &hub->routes[i], hub_route_t, link) {
            if (peer && route->peer != peer)
                continue;
            psc_list_remove(&route->link);
            free(route);
        }
    }
}

void gw_hub_leave(gw_hub_t *hub, uint64_t key)
{
    hub_peer_t *peer;

    pthread_rwlock_wrlock(&hub->tables);
    peer = table_key(hub, key);
    if (peer) {
        hub_streams_forget(hub, peer->node);
        table_forget_routes(hub, peer);
        psc_list_remove(&peer->node_link);
        psc_list_remove(&peer->conn_link);
        psc_list_remove(&peer->link);
    }
    pthread_rwlock_unlock(&hub->tables);
    if (!peer)
        return;
    pthread_mutex_lock(&peer->lock);
    peer->conn = NULL;
    pthread_mutex_unlock(&peer->lock);
    hub_peer_drop(peer);
}

void gw_hub_greet(gw_hub_t *hub, uint64_t key, uint64_t node, uint64_t ours)
{
    gw_head_t head = {.kind = GW_REGISTER, .from_node = ours};
    psc_conn_t *conn = NULL;
    hub_peer_t *peer;

    pthread_rwlock_rdlock(&hub->tables);
    peer = table_key(hub, key);
    if (peer)
        conn = peer->conn;
    pthread_rwlock_unlock(&hub->tables);
    if (!conn)
        return;
    hub->api->am_post(conn, GW_AM_ID, &head, sizeof head, NULL, 0);
    hub_register(hub, conn, node, 0);
}

static void table_add_route(gw_hub_t *hub, const gw_hub_way_t *way)
{
    hub_peer_t *peer = table_node(hub, way->node);
    hub_route_t *route = peer ? calloc(1, sizeof *route) : NULL;

    if (!route)
        return; /* memory is short: the next call of gw_hub_set_ways adds the
                   route */
    route->peer = peer;
    route->module = way->module;
    psc_list_push(table_routes(hub, way->module), &route->link);
}

void gw_hub_set_ways(gw_hub_t *hub, const gw_hub_way_t *ways, uint32_t n)
{
    pthread_rwlock_wrlock(&hub->tables);
    table_forget_routes(hub, NULL);
    for (uint32_t i = 0; i < n; i++)
        table_add_route(hub, &ways[i]);
    pthread_rwlock_unlock(&hub->tables);
}

void gw_hub_set_load(gw_hub_t *hub, uint64_t node, uint64_t bytes)
{
    hub_peer_t *peer;

    pthread_rwlock_rdlock(&hub->tables);
    peer = table_node(hub, node);
    if (peer)
        atomic_store(&peer->load, bytes);
    pthread_rwlock_unlock(&hub->tables);
}

void hub_tables_destroy(gw_hub_t *hub)
{
    table_forget_routes(hub, NULL);
    psc_list_for_each(peer, &hub->peers, hub_peer_t, link)
        hub_peer_drop(peer);
}
