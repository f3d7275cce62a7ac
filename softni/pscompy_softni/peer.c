/* Peers, which are other NIs: the table of peers by address, and the timers for
 * resending frames and for waiting for replies. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nic.h"

#define FIRST_PATIENCE 20000000ll
#define LEAST_PATIENCE 5000000ll
#define MOST_PATIENCE 1000000000ll
#define PROBE_NS 100000000ll
#define REFUSED_NS 1000000ll
#define REFUSALS 3u
#define DEAD_AFTER 100u
/* A silent peer is not given up before frames were resent this many times,
 * even if its `patience` has passed. */
#define ATTEMPTS 4
#define FRAMES 5u /* smallest number of full frames that a window may hold */
#define LEAST_FRAME 1024u
#define MOST_FRAME (61440u + (uint32_t)sizeof(psni_message_t))
#define HEADERS 28u /* bytes of the headers of IPv4 and UDP */
#define SMALL_MTU 1500u

static psni_peer_t **psni_peer_bucket(psni_ni_t *ni, ptl_process_t id)
{
    uint32_t mixed = (id.phys.nid * 31u + id.phys.pid) * 2654435761u;

    return &ni->peers[mixed / (UINT32_MAX / PSNI_BUCKETS + 1)];
}

psni_peer_t *psni_peer_find(psni_ni_t *ni, ptl_process_t id)
{
    psni_peer_t *peer = *psni_peer_bucket(ni, id);

    while (peer != NULL && (peer->id.phys.nid != id.phys.nid ||
                            peer->id.phys.pid != id.phys.pid))
        peer = peer->next;
    return peer;
}

/* Returns the maximum number of bytes that a datagram on the path to the
 * address carries without being fragmented. */
static uint32_t psni_peer_mtu(const struct sockaddr_in *to)
{
    int mtu = 0, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof(mtu);

    if (fd >= 0) {
        if (connect(fd, (const struct sockaddr *)to, sizeof(*to)) != 0 ||
            getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &size) != 0)
            mtu = 0;
        close(fd);
    }
    if (mtu < (int)SMALL_MTU)
        mtu = SMALL_MTU;
    if ((uint32_t)mtu - HEADERS > PSNI_FRAME_MAX)
        return PSNI_FRAME_MAX;
    return (uint32_t)mtu - HEADERS;
}

/* Returns the payload bytes of one frame: one datagram of the path, or less if
 * a window would have fewer than FRAMES frames. */
static uint32_t psni_peer_frame_size(const psni_peer_t *peer)
{
    uint32_t size = psni_peer_mtu(&peer->address);

    size -= (uint32_t)sizeof(psni_head_t);
    if (size > peer->ni->room / FRAMES)
        size = (uint32_t)(peer->ni->room / FRAMES);
    if (size > MOST_FRAME)
        size = MOST_FRAME;
    return size < LEAST_FRAME ? LEAST_FRAME : size;
}

psni_peer_t *psni_peer_make(psni_ni_t *ni, ptl_process_t id)
{
    psni_peer_t **bucket = psni_peer_bucket(ni, id);
    psni_peer_t *peer = calloc(1, sizeof(*peer));

    if (peer == NULL)
        return NULL;
    peer->ni = ni;
    peer->id = id;
    peer->address.sin_family = AF_INET;
    peer->address.sin_addr.s_addr = htonl(id.phys.nid);
    peer->address.sin_port = htons((uint16_t)id.phys.pid);
    peer->order = (psc_reorder_t){
        .held = peer->held, .size = PSNI_WINDOW, .limit = PSNI_WINDOW};
    peer->frame_size = psni_peer_frame_size(peer);
    peer->deadline = peer->owed_by = PSNI_NEVER;
    peer->patience = PSNI_NEVER;
    if (ni->settings.has_key)
        memcpy(peer->cookie, ni->cookie, sizeof(peer->cookie));
    peer->admitted = ni->settings.has_key;
    psc_list_init(&peer->ops);
    psc_list_init(&peer->queue);
    psc_list_init(&peer->answers);
    psc_list_init(&peer->answering);
    psc_list_init(&peer->busy);
    peer->next = *bucket;
    *bucket = peer;
    return peer;
}

/* ---- time-outs ---- */

int64_t psni_peer_resend_delay(const psni_peer_t *peer)
{
    unsigned doublings = peer->unanswered < 8 ? peer->unanswered : 8;
    int64_t wait = peer->trip + 4 * peer->spread;

    if (peer->trip == 0)
        wait = FIRST_PATIENCE;
    if (wait < LEAST_PATIENCE)
        wait = LEAST_PATIENCE;
    wait <<= doublings;
    if (wait > peer->patience / ATTEMPTS)
        wait = peer->patience / ATTEMPTS;
    return wait < MOST_PATIENCE ? wait : MOST_PATIENCE;
}

bool psni_peer_may_retry(psni_peer_t *peer)
{
    unsigned limit = peer->ni->settings.dead_after;
    int64_t now = psc_clock_now();

    peer->refusals += peer->refused;
    peer->refused = false;
    if (peer->unanswered++ == 0)
        peer->silent_at = now;
    return peer->refusals < REFUSALS &&
           (now - peer->silent_at < peer->patience ||
            peer->unanswered <= ATTEMPTS) &&
           peer->unanswered <= (limit == 0 ? DEAD_AFTER : limit);
}

/* Called when the peer's machine reports that no socket is open at the peer's
 * address. The peer counts as lost only after REFUSALS such reports without an
 * answer in between. */
void psni_peer_refused(psni_peer_t *peer)
{
    int64_t soon;

    if (peer->state == PSNI_PEER_IDLE || peer->deadline == PSNI_NEVER)
        return;
    peer->refused = true;
    soon = psc_clock_now() + REFUSED_NS;
    if (soon < peer->deadline)
        psni_peer_timer(peer, soon);
}

void psni_peer_timer(psni_peer_t *peer, int64_t when)
{
    peer->deadline = when;
    if (when == PSNI_NEVER)
        return;
    if (!psc_link_listed(&peer->busy))
        psc_list_push(&peer->ni->busy, &peer->busy);
    psni_timer(peer->ni, when);
}

bool psni_peer_awaited(const psni_peer_t *peer)
{
    return !psc_list_empty(&peer->ops) || peer->incoming.active;
}

/* Sets the timer for the resend of frames in flight. A peer that owes only an
 * answer is asked at intervals whether it is alive. */
void psni_peer_expect(psni_peer_t *peer, int64_t now)
{
    int64_t wait = psni_peer_resend_delay(peer);

    if (peer->oldest != peer->next_seq)
        psni_peer_timer(peer, now + wait);
    else if (psni_peer_awaited(peer))
        psni_peer_timer(peer, now + (wait > PROBE_NS ? wait : PROBE_NS));
    else
        peer->deadline = PSNI_NEVER;
}

bool psni_peers_quiet(psni_ni_t *ni)
{
    psc_list_for_each(peer, &ni->busy, psni_peer_t, busy) {
        if (peer->oldest != peer->next_seq || !psc_list_empty(&peer->queue))
            return false;
    }
    return psc_list_empty(&ni->held);
}
