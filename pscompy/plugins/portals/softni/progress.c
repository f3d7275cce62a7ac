/* One pass: what is due, then one datagram. Whoever calls the interface makes
 * passes; the thread makes them while nobody does. */
#include "nic.h"

#define IDLE_PASSES 4u

/* Each part tells anew when it wants to be looked at again. */
static void psni_progress_tick(psni_ni_t *ni, int64_t now)
{
    ni->deadline = PSNI_NEVER;
    psni_peers_tick(ni, now);
    psni_knobs_tick(ni, now);
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

void psni_timer(psni_ni_t *ni, int64_t when)
{
    if (when >= ni->deadline)
        return;
    ni->deadline = when;
    if (when < ni->thread.sleeps_until)
        psni_thread_wake(ni);
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

/* Whoever answers a message does so within a few passes; then the answers of
 * the NI need no frame of their own. */
bool psni_progress(psni_ni_t *ni)
{
    bool came = psni_progress_pass(ni);

    ni->calls++;
    psni_bells_rest(ni);
    if (came) {
        ni->idle = 0;
        ni->flow++;
    } else if (!psc_list_empty(&ni->answering) && ++ni->idle == IDLE_PASSES) {
        psni_send_answers(ni);
    }
    return came;
}
