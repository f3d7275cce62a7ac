/* One pass of an NI: timers that are due, then one datagram. Every function of
 * the specification that looks for events makes passes; the NI's own thread
 * makes passes while no caller does. */
#include "nic.h"

#define IDLE_PASSES 4u

/* ---- peers ---- */

static void psni_peer_due(psni_peer_t *peer, int64_t now)
{
    if (peer->state == PSNI_PEER_IDLE) {
        peer->deadline = PSNI_NEVER;
    } else if (peer->state != PSNI_PEER_UP) {
        psni_handshake_again(peer, now);
    } else if (peer->oldest == peer->next_seq && !psni_peer_awaited(peer)) {
        peer->deadline = PSNI_NEVER;
    } else if (!psni_peer_may_retry(peer)) {
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
    psni_timer(peer->ni,
               peer->deadline < peer->owed_by ? peer->deadline : peer->owed_by);
}

/* Checks the deadlines of the peers in the list `busy`. While this loop runs,
 * psni_peer_tick may remove its own peer from the list, but no other. */
static void psni_peers_tick(psni_ni_t *ni, int64_t now)
{
    psc_list_for_each(peer, &ni->busy, psni_peer_t, busy)
        psni_peer_tick(peer, now);
}

/* ---- passes ---- */

/* Handles timers that have expired. Each function called here sets the time of
 * its next call with psni_timer. */
static void psni_progress_tick(psni_ni_t *ni, int64_t now)
{
    ni->deadline = PSNI_NEVER;
    psni_peers_tick(ni, now);
    psni_faults_tick(ni, now);
    if (!psc_list_empty(&ni->answering)) {
        if (ni->answers_by <= now)
            psni_send_answers(ni);
        else
            psni_timer(ni, ni->answers_by);
    }
    if (ni->late_eq != NULL && ni->late_until <= now)
        psni_match_post_late(ni);
    else if (ni->late_eq != NULL)
        psni_timer(ni, ni->late_until);
}

bool psni_progress_pass(psni_ni_t *ni)
{
    int64_t now;

    if (ni->deadline != PSNI_NEVER) {
        now = psc_clock_now();
        if (now >= ni->deadline)
            psni_progress_tick(ni, now);
    }
    return psni_wire_poll(ni);
}

/* Makes one pass for a caller. Delays waiting ACKs for IDLE_PASSES passes: a
 * caller that answers a message does so within a few passes, and the ACKs are
 * sent with the answer. */
bool psni_progress(psni_ni_t *ni)
{
    bool handled = psni_progress_pass(ni);

    ni->calls++;
    psni_doorbells_rest(ni);
    if (handled) {
        ni->idle = 0;
        ni->flow++;
    } else if (!psc_list_empty(&ni->answering) && ++ni->idle == IDLE_PASSES) {
        psni_send_answers(ni);
    }
    return handled;
}
