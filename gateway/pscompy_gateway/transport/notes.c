/* Applies notes, the events that the Python half queues (note_queue.h), to
 * paths, routes and endpoints. */
#include "agent.h"

#include <stdlib.h>
#include <string.h>

#include "note_queue.h"

static void note_up(gw_agent_t *agent, const gw_note_t *note)
{
    gw_path_t *path = &agent->paths[note->path % GW_PATHS_MAX];
    gw_head_t *head;
    gw_packet_t *packet = gw_packet_create(agent, NULL, 0);

    path->conn = note->conn;
    memcpy(path->name, note->name, sizeof path->name);
    if (!packet)
        return;
    head = &packet->head;
    *head = (gw_head_t){.kind = GW_REGISTER,
                        .from_node = agent->node,
                        .from_module = agent->module};
    gw_packet_send(packet, path);
    gw_packet_drop(packet);
    psc_list_for_each(ep, &agent->eps, gw_ep_t, link) {
        ep->way.unreachable &= ~(1u << note->path % GW_PATHS_MAX);
        gw_path_leave(
            ep); /* the home path is chosen again, as there is one more path */
        gw_ep_due(ep);
    }
}

static void note_down(gw_agent_t *agent, const gw_note_t *note)
{
    uint32_t index = note->path % GW_PATHS_MAX;

    if (!agent->paths[index].conn)
        return;
    agent->paths[index].conn = NULL;
    psc_list_for_each(ep, &agent->eps, gw_ep_t, link)
        gw_out_again(ep, 1u << index, false, 0);
}

static void note_lost(gw_agent_t *agent, const gw_note_t *note)
{
    psc_list_for_each(ep, &agent->eps, gw_ep_t, link) {
        if (ep->state != GW_EP_NEW && ep->peer.node == note->node)
            gw_ep_fail(ep, PSC_ERR_PEER_LOST, note->name);
    }
}

static void note_route(gw_agent_t *agent, const gw_note_t *note)
{
    gw_route_t *route = gw_path_route(agent, note->node);

    if (!route) {
        route = calloc(1, sizeof *route);
        if (!route)
            return; /* no memory: packets to the node take any path */
        route->node = note->node;
        psc_list_push(&agent->routes, &route->link);
    }
    route->path = note->path % GW_PATHS_MAX;
}

/* The load that a gateway reports includes the bytes of this process, which
 * `inflight` counts already: subtracts them. */
static void note_load(gw_agent_t *agent, const gw_note_t *note)
{
    gw_path_t *path = &agent->paths[note->path % GW_PATHS_MAX];

    path->others =
        note->load > path->inflight ? note->load - path->inflight : 0;
    path->streams = note->streams;
}

static void note_tick(gw_agent_t *agent, const gw_note_t *note)
{
    (void)note;
    psc_list_for_each(ep, &agent->eps, gw_ep_t, link)
        gw_probe_tick(ep);
}

static void (*const note_handlers[])(gw_agent_t *, const gw_note_t *) = {
    [GW_NOTE_UP] = note_up,     [GW_NOTE_DOWN] = note_down,
    [GW_NOTE_LOST] = note_lost, [GW_NOTE_ROUTE] = note_route,
    [GW_NOTE_LOAD] = note_load, [GW_NOTE_TICK] = note_tick,
};

void gw_notes_apply(gw_agent_t *agent)
{
    gw_note_t *next;

    for (gw_note_t *note = gw_notes_take(agent); note; note = next) {
        next = note->next;
        note_handlers[note->kind](agent, note);
        agent->handled++;
        free(note);
    }
}
