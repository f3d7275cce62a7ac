/* Pacing, if there are several rails: limits the unsent bytes that the kernel
 * takes of a stream to as many as the peer acknowledges in TCP_PACE_MS. All
 * rails then finish the parts of a message at about the same time, and the time
 * in which a rail takes these parts shows how fast it is. */
#include <linux/tcp.h>

#include "pscompy/transport/kit/clock.h"
#include "tcp.h"

#define TCP_PACE_MS 20
/* shortest time between two measurements of a stream */
#define TCP_PACE_EVERY_NS 10000000
/* A longer measurement is ignored, as nothing was sent for a part of it. */
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

/* Returns the new limit of unsent bytes. `bytes` is the number of bytes that
 * the peer acknowledges in TCP_PACE_MS, `before` is the present limit. The
 * limit at most doubles, because a rail with a traffic shaper carries the first
 * bytes faster than the later ones. */
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
