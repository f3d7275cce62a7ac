/* Rails other than the first. Their connection goes on without them, so they
 * may fail early. They carry only pieces of long messages, so they are polled
 * less often while they bring nothing. */
#include <linux/tcp.h>

#include "pscompy/transport/kit/clock.h"
#include "tcp.h"

#define TCP_RAIL_LOOK_NS 250000000 /* between two looks at an endpoint */
#define TCP_RAIL_POLL_NS 20000
/* Segments that were sent so often without an answer are not merely late. */
#define TCP_RAIL_RETRIES 2

static bool tcp_rail_spare(const tcp_iface_t *iface)
{
    return iface->settings.paced && iface->path > 0;
}

/* A peer that does not read still acknowledges what it has no room for, so it
 * is not silent. */
static bool tcp_rail_silent(const tcp_ep_t *ep, const struct tcp_info *info)
{
    int64_t most = tcp_ep_iface(ep)->settings.rail_ns / 1000000;

    return info->tcpi_last_ack_recv >= most &&
           (info->tcpi_retransmits >= TCP_RAIL_RETRIES ||
            info->tcpi_probes >= TCP_RAIL_RETRIES);
}

/* Returns true if the endpoint is to be looked at again. */
static bool tcp_rail_look(tcp_ep_t *ep)
{
    struct tcp_info info = {.tcpi_unacked = 0};
    socklen_t len = sizeof(info);

    if (ep->stage != TCP_EP_UP ||
        getsockopt(ep->rx.fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return false;
    if (tcp_rail_silent(ep, &info))
        tcp_ep_break(ep, PSC_ERR_PEER_LOST,
                     "%s has not answered in time (PSP_TCP_RAIL_TIMEOUT)",
                     ep->peer);
    return info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0;
}

void tcp_rail_sent(tcp_iface_t *iface, int64_t now)
{
    if (tcp_rail_spare(iface))
        tcp_iface_wake_at(iface, now + TCP_RAIL_LOOK_NS);
}

int64_t tcp_rails_expire(tcp_iface_t *iface, int64_t now)
{
    bool again = false;

    if (!tcp_rail_spare(iface))
        return TCP_NEVER;
    psc_list_for_each(ep, &iface->settled, tcp_ep_t, link)
        again |= tcp_rail_look(ep);
    return again ? now + TCP_RAIL_LOOK_NS : TCP_NEVER;
}

bool tcp_rail_rests(tcp_iface_t *iface)
{
    int64_t now;

    if (!tcp_rail_spare(iface) || iface->handled > 0)
        return false;
    now = psc_clock_now();
    if (now < iface->rests_until)
        return true;
    iface->rests_until = now + TCP_RAIL_POLL_NS;
    return false;
}
