/* Ways to gateways: which one a packet takes, and what the Python half tells of
 * them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

/* A short packet keeps to its endpoint's home unless that has so many bytes
 * more under way than another: it then would wait behind them. */
#define HOME_EXTRA (256u << 10)
#define STRIPE_MIN 4096u /* longer packets take the emptiest way */

uint32_t gw_path_usable(const gw_ep_t *ep)
{
    const gw_agent_t *agent = gw_agent_of(ep);
    uint32_t up = 0;

    for (uint32_t i = 0; i < GW_PATHS_MAX; i++) {
        if (agent->paths[i].conn)
            up |= 1u << i;
    }
    return up & ~ep->unreachable;
}

static gw_path_t *path_emptiest(gw_agent_t *agent, uint32_t usable,
                                uint32_t first)
{
    gw_path_t *best = NULL;

    for (uint32_t n = 0; n < GW_PATHS_MAX; n++) {
        uint32_t i = (first + n) % GW_PATHS_MAX;
        gw_path_t *path = &agent->paths[i];

        if (usable >> i & 1 && (!best || path->inflight < best->inflight))
            best = path;
    }
    return best;
}

/* Few endpoints have it as their home; of equal ones, each process another. */
static uint32_t path_home(gw_agent_t *agent, uint32_t usable)
{
    uint32_t best = GW_PATHS_MAX, count = 0, turn;

    for (uint32_t i = 0; i < GW_PATHS_MAX; i++)
        count += usable >> i & 1;
    turn = (uint32_t)(agent->node % count);
    for (uint32_t n = 0; n < 2 * GW_PATHS_MAX; n++) {
        uint32_t i = n % GW_PATHS_MAX;

        if (!(usable >> i & 1) || (turn > 0 && turn-- > 0))
            continue;
        if (best == GW_PATHS_MAX ||
            agent->paths[i].eps < agent->paths[best].eps)
            best = i;
    }
    return best;
}

static gw_path_t *path_of_home(gw_ep_t *ep, uint32_t usable)
{
    gw_agent_t *agent = gw_agent_of(ep);

    if (ep->home < GW_PATHS_MAX && usable >> ep->home & 1)
        return &agent->paths[ep->home];
    if (ep->home < GW_PATHS_MAX)
        agent->paths[ep->home].eps--;
    ep->home = path_home(agent, usable);
    agent->paths[ep->home].eps++;
    return &agent->paths[ep->home];
}

static const gw_route_t *path_route(const gw_ep_t *ep)
{
    gw_agent_t *agent = gw_agent_of(ep);

    psc_list_for_each(route, &agent->routes, gw_route_t, link) {
        if (route->node == ep->peer_node)
            return route;
    }
    return NULL;
}

gw_path_t *gw_path_choose(gw_ep_t *ep, size_t len)
{
    gw_agent_t *agent = gw_agent_of(ep);
    uint32_t usable = gw_path_usable(ep);
    const gw_route_t *route;
    gw_path_t *home, *emptiest;

    if (!usable)
        return NULL;
    route = path_route(ep);
    if (route && usable >> route->path & 1)
        return &agent->paths[route->path];
    home = path_of_home(ep, usable);
    if (len < STRIPE_MIN && home->inflight < HOME_EXTRA)
        return home;
    emptiest = path_emptiest(agent, usable, ep->home);
    if (len < STRIPE_MIN && home->inflight < emptiest->inflight + HOME_EXTRA)
        return home;
    return emptiest;
}

void gw_path_names(const gw_agent_t *agent, char *text, size_t room)
{
    size_t at = 0;

    snprintf(text, room, "none");
    for (uint32_t i = 0; i < GW_PATHS_MAX && at < room; i++) {
        const char *name = agent->paths[i].name;

        if (name[0])
            at += (size_t)snprintf(text + at, room - at, "%s%s",
                                   at ? ", " : "", name);
    }
}

/* Whether somebody has to make progress though the program does not call. */
void gw_path_settle(gw_ep_t *ep)
{
    gw_agent_t *agent = gw_agent_of(ep);
    bool holding = ep->waiting > 0;

    if (holding == agent->holding)
        return;
    if (!holding) {
        psc_list_for_each(other, &agent->eps, gw_ep_t, link)
            holding |= other->waiting > 0;
    }
    if (holding == agent->holding)
        return;
    agent->holding = holding;
    agent->super.up->holding(&agent->super, holding);
}

/* ---- notes ---- */

int gw_agent_note(gw_agent_t *agent, int kind, uint32_t path, uintptr_t conn,
                  uint64_t node, const char *name)
{
    gw_note_t *note = calloc(1, sizeof *note);

    if (!note)
        return PSC_ERR_NO_MEMORY;
    note->kind = kind;
    note->path = path;
    note->conn = (psc_conn_t *)conn;
    note->node = node;
    snprintf(note->name, sizeof note->name, "%s", name ? name : "");
    note->next = atomic_load(&agent->notes);
    while (!atomic_compare_exchange_weak(&agent->notes, &note->next, note))
        ;
    agent->api->wake(agent->worker);
    return PSC_OK;
}

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
        ep->unreachable &= ~(1u << note->path % GW_PATHS_MAX);
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
        if (ep->stage != GW_EP_NEW && ep->peer_node == note->node)
            gw_ep_fail(ep, PSC_ERR_PEER_LOST, note->name);
    }
}

static void note_route(gw_agent_t *agent, const gw_note_t *note)
{
    gw_route_t *route = calloc(1, sizeof *route);

    if (!route)
        return; /* it is reached by any */
    route->node = note->node;
    route->path = note->path % GW_PATHS_MAX;
    psc_list_push_front(&agent->routes, &route->link);
}

static void note_tick(gw_agent_t *agent, const gw_note_t *note)
{
    (void)note;
    psc_list_for_each(ep, &agent->eps, gw_ep_t, link)
        gw_out_tick(ep);
}

static void (*const note_handlers[])(gw_agent_t *, const gw_note_t *) = {
    [GW_NOTE_UP] = note_up,       [GW_NOTE_DOWN] = note_down,
    [GW_NOTE_LOST] = note_lost,   [GW_NOTE_ROUTE] = note_route,
    [GW_NOTE_TICK] = note_tick,
};

void gw_path_notes(gw_agent_t *agent)
{
    gw_note_t *note, *first = NULL, *next;

    if (!atomic_load_explicit(&agent->notes, memory_order_relaxed))
        return;
    for (note = atomic_exchange(&agent->notes, NULL); note; note = next) {
        next = note->next; /* last in, first out: turn them round */
        note->next = first;
        first = note;
    }
    for (note = first; note; note = next) {
        next = note->next;
        note_handlers[note->kind](agent, note);
        agent->handled++;
        free(note);
    }
}
