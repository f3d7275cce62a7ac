/* The other NIs: found by their address, kept until ours closes. A peer that
 * is lost stays known; the next operation tries to meet it anew. */
#include <stdlib.h>
#include <string.h>

#include "nic.h"

#define FIRST_PATIENCE 20000000ll
#define LEAST_PATIENCE 5000000ll
#define MOST_PATIENCE 1000000000ll
#define PROBE_NS 100000000ll
#define REFUSED_NS 1000000ll
#define REFUSALS 3u
#define DEAD_AFTER 100u
#define FRAMES 5u /* in a window, at least */
#define LEAST_FRAME 1024u
#define MOST_FRAME (61440u + (uint32_t)sizeof(psni_message_t))

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

/* As much as the path takes in one piece, but several pieces in a window. */
static uint32_t psni_peer_frame_size(const psni_peer_t *peer)
{
    uint32_t size = psni_wire_mtu(&peer->address);

    size -= (uint32_t)sizeof(psni_head_t);
    if (size > peer->ni->room / FRAMES)
        size = (uint32_t)(peer->ni->room / FRAMES);
    if (size > MOST_FRAME)
        size = MOST_FRAME;
    return size < LEAST_FRAME ? LEAST_FRAME : size;
}

static psni_peer_t *psni_peer_make(psni_ni_t *ni, ptl_process_t id)
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
    peer->frame_size = psni_peer_frame_size(peer);
    peer->deadline = peer->owed_by = PSNI_NEVER;
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

psni_peer_t *psni_peer_get(psni_ni_t *ni, ptl_process_t id)
{
    psni_peer_t *peer = psni_peer_find(ni, id);

    if (peer != NULL)
        return peer;
    if (id.phys.pid == 0 || id.phys.pid > PSNI_PID_MAX ||
        id.phys.nid == PTL_NID_ANY)
        return NULL;
    peer = psni_peer_make(ni, id);
    if (peer != NULL && id.phys.nid == ni->id.phys.nid &&
        id.phys.pid == ni->id.phys.pid) {
        uint64_t token = psni_secret(ni, ni->cookie, sizeof(ni->cookie));

        peer->itself = peer->admitted = true;
        peer->uid = ni->uid;
        peer->most = ni->room;
        psni_peer_up(peer, token, token);
    }
    return peer;
}

int softni_admit(ptl_handle_ni_t ni_handle, ptl_process_t peer_id,
                 const uint8_t cookie[SOFTNI_COOKIE_BYTES])
{
    psni_ni_t *ni;
    psni_peer_t *peer;
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, &ni);

    if (rc != PTL_OK)
        return rc;
    peer = psni_peer_get(ni, peer_id);
    if (peer == NULL) {
        rc = PTL_ARG_INVALID;
    } else if (!ni->settings.has_key) {
        memcpy(peer->cookie, cookie, sizeof(peer->cookie));
        peer->admitted = true;
    }
    psni_leave(ni);
    return rc;
}

/* ---- life and death ---- */

void psni_peer_up(psni_peer_t *peer, uint64_t token, uint64_t its_token)
{
    peer->stage = PSNI_STAGE_UP;
    peer->token = token;
    peer->its_token = its_token;
    peer->window = peer->most;
    peer->unanswered = peer->refusals = 0;
    peer->trip = 0;
    psni_send_pump(peer);
    psni_peer_expect(peer, psc_clock_now());
}

void psni_peer_lose(psni_peer_t *peer)
{
    psc_list_t ops;
    psc_link_t *link;

    peer->stage = PSNI_STAGE_IDLE;
    peer->token = peer->its_token = peer->next_token = 0;
    peer->refused = false;
    peer->unanswered = peer->refusals = 0;
    peer->deadline = peer->owed_by = PSNI_NEVER;
    peer->ni->counters.peers_lost++;
    psni_send_reset(peer);
    psni_arrive_reset(peer);
    psc_list_init(&ops);
    while ((link = psc_list_pop(&peer->ops)) != NULL)
        psc_list_push(&ops, link);
    while ((link = psc_list_pop(&ops)) != NULL)
        psni_op_fail(psc_container_of(link, psni_op_t, all),
                     PTL_NI_UNDELIVERABLE);
}

void psni_peers_close(psni_ni_t *ni)
{
    for (unsigned i = 0; i < PSNI_BUCKETS; i++)
        for (psni_peer_t *peer = ni->peers[i], *next; peer; peer = next) {
            next = peer->next;
            psni_peer_lose(peer);
            free(peer);
        }
}

/* ---- waiting for it ---- */

int64_t psni_peer_patience(const psni_peer_t *peer)
{
    unsigned doublings = peer->unanswered < 8 ? peer->unanswered : 8;
    int64_t wait = peer->trip + 4 * peer->spread;

    if (peer->trip == 0)
        wait = FIRST_PATIENCE;
    if (wait < LEAST_PATIENCE)
        wait = LEAST_PATIENCE;
    wait <<= doublings;
    return wait < MOST_PATIENCE ? wait : MOST_PATIENCE;
}

bool psni_peer_bear(psni_peer_t *peer)
{
    unsigned limit = peer->ni->settings.dead_after;

    peer->refusals += peer->refused;
    peer->refused = false;
    peer->unanswered++;
    return peer->refusals < REFUSALS &&
           peer->unanswered <= (limit == 0 ? DEAD_AFTER : limit);
}

/* Its machine says that nobody listens there. It is believed when it said so
 * several times, and the peer nothing in between. */
void psni_peer_refused(psni_peer_t *peer)
{
    int64_t soon;

    if (peer->stage == PSNI_STAGE_IDLE || peer->deadline == PSNI_NEVER)
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

static bool psni_peer_awaited(const psni_peer_t *peer)
{
    return !psc_list_empty(&peer->ops) || peer->incoming.active;
}

/* Frames under way are resent after a while; who owes us anything else is
 * asked now and then whether it is still there. */
void psni_peer_expect(psni_peer_t *peer, int64_t now)
{
    int64_t wait = psni_peer_patience(peer);

    if (peer->oldest != peer->next_seq)
        psni_peer_timer(peer, now + wait);
    else if (psni_peer_awaited(peer))
        psni_peer_timer(peer, now + (wait > PROBE_NS ? wait : PROBE_NS));
    else
        peer->deadline = PSNI_NEVER;
}

static void psni_peer_due(psni_peer_t *peer, int64_t now)
{
    if (peer->stage == PSNI_STAGE_IDLE) {
        peer->deadline = PSNI_NEVER;
    } else if (peer->stage != PSNI_STAGE_UP) {
        psni_meet_again(peer, now);
    } else if (peer->oldest == peer->next_seq && !psni_peer_awaited(peer)) {
        peer->deadline = PSNI_NEVER;
    } else if (!psni_peer_bear(peer)) {
        psni_peer_lose(peer);
    } else {
        if (peer->oldest == peer->next_seq)
            psni_send_ack(peer, PSNI_FLAG_ACK_NOW);
        else
            psni_send_again(peer, now);
        psni_peer_expect(peer, now);
    }
}

static void psni_peer_tick(psni_peer_t *peer, int64_t now)
{
    if (peer->owed_by <= now)
        psni_send_ack(peer, 0);
    if (peer->deadline <= now)
        psni_peer_due(peer, now);
    if (peer->deadline == PSNI_NEVER && peer->owed_by == PSNI_NEVER) {
        psc_list_remove(&peer->busy);
        return;
    }
    psni_timer(peer->ni, peer->deadline < peer->owed_by ? peer->deadline
                                                        : peer->owed_by);
}

/* One peer's tick may change only its own place in the list. */
void psni_peers_tick(psni_ni_t *ni, int64_t now)
{
    psc_list_for_each(peer, &ni->busy, psni_peer_t, busy)
        psni_peer_tick(peer, now);
}

bool psni_peers_quiet(psni_ni_t *ni)
{
    psc_list_for_each(peer, &ni->busy, psni_peer_t, busy)
    {
        if (peer->oldest != peer->next_seq || !psc_list_empty(&peer->queue))
            return false;
    }
    return psc_list_empty(&ni->held);
}
