/* Finds packets that were lost in a gateway, by asking the peer, and peers that
 * no gateway leads to. */
#include "agent.h"

#include <stdio.h>

#define PROBE_TICKS                                                            \
    2u /* ticks without acknowledgement before the first probe */
/* number of ticks (0.1 s) without a path to the peer, after which the peer
 * counts as lost */
#define STRANDED_TICKS 30u

static void probe_send(gw_ep_t *ep)
{
    gw_agent_t *agent = gw_agent_of(ep);
    uint32_t used = 0;

    psc_list_for_each(packet, &ep->out.unacked, gw_packet_t, link) {
        if (!packet->waiting)
            used |= 1u << packet->path;
    }
    used &= gw_path_usable(ep);
    for (uint32_t i = 0; used >> i; i++) {
        if (used >> i & 1)
            gw_packet_signal(ep, &agent->paths[i], GW_PROBE, (uint8_t)i,
                             ++ep->out.clock);
    }
}

static void probe_stranded(gw_ep_t *ep)
{
    char reason[PSC_REASON_MAX], names[PSC_REASON_MAX - 64];

    if (gw_path_usable(ep)) {
        ep->watch.stranded = 0;
        return;
    }
    if (++ep->watch.stranded < STRANDED_TICKS)
        return;
    gw_path_names(gw_agent_of(ep), names, sizeof names);
    snprintf(reason, sizeof reason, "no gateway leads to it (tried %s)", names);
    gw_ep_fail(ep, PSC_ERR_PEER_LOST, reason);
}

static bool is_power_of_two(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

/* Called every tenth of a second. The pauses between probes grow, because
 * the peer may be computing. */
void gw_probe_tick(gw_ep_t *ep)
{
    gw_watch_t *watch = &ep->watch;

    if (ep->state >= GW_EP_ENDED || ep->state == GW_EP_NEW)
        return;
    probe_stranded(ep);
    if (ep->out.acked != watch->last_acked ||
        psc_list_empty(&ep->out.unacked)) {
        watch->last_acked = ep->out.acked;
        watch->ticks = 0;
        return;
    }
    watch->ticks++;
    if (watch->ticks >= PROBE_TICKS && is_power_of_two(watch->ticks))
        probe_send(ep);
    ep->way.unreachable = 0; /* a path may lead to the peer again by now */
    gw_ep_due(ep);
}
