/* Chooses the path to a gateway that a packet takes. */
#include "agent.h"

#include <stdio.h>
#include <stdlib.h>

/* A short packet takes the home path of its endpoint, unless that path has at
 * least HOME_EXTRA more bytes in flight than another one. When a home is
 * chosen, each endpoint that has a path as its home counts as HOME_EXTRA bytes
 * there. */
#define HOME_EXTRA (256u << 10)
/* Packets from this size on take the path with the least load. */
#define STRIPE_MIN 4096u

uint32_t gw_path_usable(const gw_ep_t *ep)
{
    const gw_agent_t *agent = gw_agent_of(ep);
    uint32_t up = 0;

    for (uint32_t i = 0; i < GW_PATHS_MAX; i++) {
        if (agent->paths[i].conn)
            up |= 1u << i;
    }
    return up & ~ep->way.unreachable;
}

/* Returns the bytes in flight on this path: the bytes of this process, and the
 * bytes of other processes that the gateway has reported. */
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

/* Returns true if `path` has less load than `than`. The number of streams
 * decides only between paths that are equal in endpoints and bytes. Gateways
 * report this number with a delay and to all processes alike; if it alone
 * decided, all processes would choose the same path. */
static bool path_calmer(const gw_path_t *path, const gw_path_t *than)
{
    uint64_t one = path->eps + path->others / HOME_EXTRA;
    uint64_t other = than->eps + than->others / HOME_EXTRA;

    return one != other ? one < other : path->streams < than->streams;
}

/* Returns the index of the path with the least load. Among equal paths the
 * choice depends on the node number of this process, so that processes spread
 * over the paths. */
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
    if (ep->way.home < GW_PATHS_MAX)
        gw_agent_of(ep)->paths[ep->way.home].eps--;
    ep->way.home = GW_PATHS_MAX;
}

static gw_path_t *path_of_home(gw_ep_t *ep, uint32_t usable)
{
    gw_agent_t *agent = gw_agent_of(ep);

    if (ep->way.home < GW_PATHS_MAX && usable >> ep->way.home & 1)
        return &agent->paths[ep->way.home];
    gw_path_leave(ep);
    ep->way.home = path_home(agent, usable);
    agent->paths[ep->way.home].eps++;
    return &agent->paths[ep->way.home];
}

gw_route_t *gw_path_route(gw_agent_t *agent, uint64_t node)
{
    psc_list_for_each(route, &agent->routes, gw_route_t, link) {
        if (route->node == node)
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
    route = gw_path_route(agent, ep->peer.node);
    if (route && usable >> route->path & 1)
        return &agent->paths[route->path];
    home = path_of_home(ep, usable);
    if (len < STRIPE_MIN && path_load(home) < HOME_EXTRA)
        return home;
    emptiest = path_emptiest(agent, usable, ep->way.home);
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
            at += (size_t)snprintf(text + at, room - at, "%s%s", at ? ", " : "",
                                   name);
    }
}

void gw_path_settle(gw_ep_t *ep)
{
    gw_agent_t *agent = gw_agent_of(ep);
    bool holding = ep->out.n_waiting > 0;

    if (holding == agent->holding)
        return;
    if (!holding) {
        psc_list_for_each(other, &agent->eps, gw_ep_t, link)
            holding |= other->out.n_waiting > 0;
    }
    if (holding == agent->holding)
        return;
    agent->holding = holding;
    agent->super.up->holding(&agent->super, holding);
}
