/* Ways to gateways: which one a packet takes, and what the Python half tells of
 * them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

/* A short packet keeps to its endpoint's home unless that has so many bytes
 * more under way than another: it then would wait behind them. An endpoint
 * weighs as much where homes are chosen. */
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

/* Bytes on this way, as far as is known. */
static uint64_t path_load(const gw_path_t *path)
{
    return path->inflight + path->others;
}

static gw_path_t *path_emptiest(gw_agent_t *agent, uint32_t usable,
                                uint32_t first)
{
    gw_path_t *best = NULL;

    for (uint32_t n = 0; n < GW_PATHS_MAX; n++) {
        uint32_t i = (first + n) % GW_PATHS_MAX;
        gw_path_t *path = &agent->paths[i];

        if (usable >> i & 1 && (!best || path_load(path) < path_load(best)))
            best = path;
    }
    return best;
}

/* How many pairs others have there decides between equals alone: everybody
 * hears the same, late, and would go where nobody was then. */
static bool path_calmer(const gw_path_t *path, const gw_path_t *than)
{
    uint64_t one = path->eps + path->others / HOME_EXTRA;
    uint64_t other = than->eps + than->others / HOME_EXTRA;

    return one != other ? one < other : path->streams < than->streams;
}

/* The least crowded; of equal ones, each process another. */
static uint32_t path_home(gw_agent_t *agent, uint32_t usable)
{
    uint32_t best = GW_PATHS_MAX, count = 0, turn;

    for (uint32_t i = 0; i < GW_PATHS_MAX; i++)
        count += usable >> i & 1;
    turn = (uint32_t)((agent->node >> 32) % count);
    for (uint32_t n = 0; n < 2 * GW_PATHS_MAX; n++) {
        uint32_t i = n % GW_PATHS_MAX;

        if (!(usable >> i & 1) || (turn > 0 && turn-- > 0))
            continue;
        if (best == GW_PATHS_MAX ||
            path_calmer(&agent->paths[i], &agent->paths[best]))
            best = i;
    }
    return best;
}

void gw_path_leave(gw_ep_t *ep)
{
    if (ep->home < GW_PATHS_MAX)
        gw_agent_of(ep)->paths[ep->home].eps--;
    ep->home = GW_PATHS_MAX;
}

static gw_path_t *path_of_home(gw_ep_t *ep, uint32_t usable)
{
    gw_agent_t *agent = gw_agent_of(ep);

    if (ep->home < GW_PATHS_MAX && usable >> ep->home & 1)
        return &agent->paths[ep->home];
    gw_path_leave(ep);
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
    if (len < STRIPE_MIN && path_load(home) < HOME_EXTRA)
        return home;
    emptiest = path_emptiest(agent, usable, ep->home);
    if (len < STRIPE_MIN && path_load(home) < path_load(emptiest) + HOME_EXTRA)
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

static int note_leave(gw_agent_t *agent, const gw_note_t *what)
{
    gw_note_t *note = malloc(sizeof *note);

    if (!note)
        return PSC_ERR_NO_MEMORY;
    *note = *what;
    note->next = atomic_load(&agent->notes);
    while (!atomic_compare_exchange_weak(&agent->notes, &note->next, note))
        ;
    agent->api->wake(agent->worker);
    return PSC_OK;
}

int gw_agent_note(gw_agent_t *agent, int kind, uint32_t path, uintptr_t conn,
                  uint64_t node, const char *name)
{
    gw_note_t note = {.kind = kind,
                      .path = path,
                      .conn = (psc_conn_t *)conn,
                      .node = node};

    snprintf(note.name, sizeof note.name, "%s", name ? name : "");
    return note_leave(agent, &note);
}

int gw_agent_load(gw_agent_t *agent, uint32_t path, uint64_t load,
                  uint32_t streams)
{
    gw_note_t note = {.kind = GW_NOTE_LOAD,
                      .path = path,
                      .load = load,
                      .streams = streams};

    return note_leave(agent, &note);
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
        gw_path_leave(ep); /* homes are chosen anew, among one more */
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

/* Our own bytes are counted already. */
static void note_load(gw_agent_t *agent, const gw_note_t *note)
{
    gw_path_t *path = &agent->paths[note->path % GW_PATHS_MAX];

    path->others = note->load > path->inflight ? note->load - path->inflight
                                               : 0;
    path->streams = note->streams;
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
    [GW_NOTE_LOAD] = note_load,   [GW_NOTE_TICK] = note_tick,
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
