/* Limits the unsent bytes that the kernel takes of a stream: as many as the
 * peer acknowledges in some milliseconds. All rails then end a message at about
 * the same time, and how fast a rail takes pieces of messages shows how fast
 * the rail is. */
#include <linux/tcp.h>

#include "pscompy/transport/kit/clock.h"
#include "tcp.h"

#define TCP_PACE_MS 20
#define TCP_PACE_EVERY_NS 10000000 /* least time between two measurements */
/* a longer time is not measured: nothing was sent */
#define TCP_PACE_IDLE_NS 100000000
#define TCP_UNSENT_MAX (4 << 20)

static uint64_t tcp_pace_acked(int fd)
{
    struct tcp_info info = {.tcpi_bytes_acked = 0};
    socklen_t len = sizeof(info);

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return 0;
    return info.tcpi_bytes_acked;
}

/* Returns the new limit of unsent bytes. It grows by steps only, because a rail
 * may carry its first bytes faster than it goes on: a shaped one does. */
static int tcp_pace_choose(uint64_t bytes, int before)
{
    if (bytes > 2 * (uint64_t)before)
        bytes = 2 * (uint64_t)before;
    if (bytes > TCP_UNSENT_MAX)
        bytes = TCP_UNSENT_MAX;
    return bytes < TCP_UNSENT_MIN ? TCP_UNSENT_MIN : (int)bytes;
}

void tcp_pace(tcp_ep_t *ep)
{
    int64_t now = psc_clock_now(), taken = now - ep->pace_at;
    uint64_t acked, since;

    if (taken < TCP_PACE_EVERY_NS)
        return;
    acked = tcp_pace_acked(ep->rx.fd);
    since = acked - ep->pace_acked;
    ep->pace_at = now;
    ep->pace_acked = acked;
    if (taken > TCP_PACE_IDLE_NS)
        return;
    ep->unsent = tcp_pace_choose(
        since * TCP_PACE_MS * 1000000u / (uint64_t)taken, ep->unsent);
    setsockopt(ep->rx.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &ep->unsent,
               sizeof(ep->unsent));
}
