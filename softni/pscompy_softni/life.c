/* How a peer is added to the table of peers, connected and lost. A lost peer
 * stays in the table; the next operation starts a new handshake. */
#include <stdlib.h>
#include <string.h>

#include "nic.h"

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

        peer->is_self = peer->admitted = true;
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

int softni_patience(ptl_handle_ni_t ni_handle, ptl_process_t peer_id,
                    uint64_t patience_ns)
{
    psni_ni_t *ni;
    psni_peer_t *peer;
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, &ni);

    if (rc != PTL_OK)
        return rc;
    peer = psni_peer_get(ni, peer_id);
    if (peer == NULL)
        rc = PTL_ARG_INVALID;
    else
        peer->patience = patience_ns > 0 ? (int64_t)patience_ns : PSNI_NEVER;
    psni_leave(ni);
    return rc;
}

void psni_peer_up(psni_peer_t *peer, uint64_t token, uint64_t its_token)
{
    peer->state = PSNI_PEER_UP;
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

    peer->state = PSNI_PEER_IDLE;
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
