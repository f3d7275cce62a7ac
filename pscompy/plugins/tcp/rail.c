/* Spare endpoints: each is one of several lanes of a connection. The connection
 * survives the loss of one of its lanes, so a spare endpoint fails as soon as
 * its rail is silent. */
#include <linux/tcp.h>

#include "pscompy/transport/kit/clock.h"
#include "tcp.h"

/* time between two checks whether the peer acknowledges bytes */
#define TCP_RAIL_LOOK_NS 200000000
/* An endpoint fails only after this many retransmissions or window probes
 * without an answer; after fewer, the peer may be merely late. */
#define TCP_RAIL_RETRIES 2

/* ---- silence ---- */

static bool tcp_rail_due(const tcp_ep_t *ep, const struct tcp_info *info)
{
    return info->tcpi_unacked > 0 || info->tcpi_notsent_bytes > 0 ||
           !tcp_out_empty(&ep->out);
}

/* Returns for how long the peer has acknowledged nothing although bytes were
 * sent to it. */
static int64_t tcp_rail_silence(tcp_ep_t *ep, const struct tcp_info *info,
                                int64_t now)
{
    if (ep->silent_since == 0 || info->tcpi_bytes_acked != ep->rail_acked)
        ep->silent_since = now;
    ep->rail_acked = info->tcpi_bytes_acked;
    return now - ep->silent_since;
}

/* Returns true if the peer's host does not answer at all. The host of a peer
 * that merely does not read still answers window probes. */
static bool tcp_rail_silent(tcp_ep_t *ep, const struct tcp_info *info,
                            int64_t now)
{
    int64_t most = tcp_ep_iface(ep)->settings.rail_ns;

    return tcp_rail_silence(ep, info, now) >= most &&
           info->tcpi_last_ack_recv >= most / 1000000 &&
           (info->tcpi_retransmits >= TCP_RAIL_RETRIES ||
            info->tcpi_probes >= TCP_RAIL_RETRIES);
}

/* Fails a spare endpoint if its peer is silent. Returns true if the endpoint is
 * to be checked again after TCP_RAIL_LOOK_NS. */
static bool tcp_rail_look(tcp_ep_t *ep, int64_t now)
{
    struct tcp_info info = {.tcpi_unacked = 0};
    socklen_t len = sizeof(info);

    if (!ep->spare || ep->state != TCP_EP_UP ||
        getsockopt(ep->rx.fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return false;
    if (!tcp_rail_due(ep, &info)) {
        ep->silent_since = 0;
        return false;
    }
    if (tcp_rail_silent(ep, &info, now))
        tcp_ep_break(ep, PSC_ERR_PEER_LOST,
                     "%s has not answered in time (PSP_TCP_RAIL_TIMEOUT)",
                     ep->peer);
    return true;
}

void tcp_rail_sends(tcp_ep_t *ep)
{
    tcp_iface_t *iface = tcp_ep_iface(ep);

    if (!ep->spare || iface->looks)
        return;
    iface->looks = true;
    tcp_iface_wake_at(iface, psc_clock_now() + TCP_RAIL_LOOK_NS);
}

int64_t tcp_rails_expire(tcp_iface_t *iface, int64_t now)
{
    bool again = false;

    psc_list_for_each(ep, &iface->settled, tcp_ep_t, link)
        again |= tcp_rail_look(ep, now);
    iface->looks = again;
    return again ? now + TCP_RAIL_LOOK_NS : TCP_NEVER;
}
