/* Progress: one pass over the interfaces and the queued work. */
#include "../memory/access.h"
#include "../conn.h"

/* ---- passes ---- */

/* An interface that costs a system call to poll is polled now and then while a
 * cheaper one has lanes too. */
#define PROGRESS_CHEAP_NS 100
#define PROGRESS_RARELY 16u

void psc_worker_pace(psc_worker_t *worker)
{
    bool cheap = false;

    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        cheap |= slot->lanes > 0 && slot->attr.poll_ns <= PROGRESS_CHEAP_NS;
    }
    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        slot->every = cheap && slot->attr.poll_ns > PROGRESS_CHEAP_NS
                          ? PROGRESS_RARELY
                          : 1;
    }
    psc_spin_pace(worker);
}

static bool progress_due(const psc_iface_slot_t *slot, uint32_t pass)
{
    return slot->lanes > 0 && (pass & (slot->every - 1)) == 0;
}

/* In this order: a lane is freed after the requests that wait for its peer, a
 * connection after its lanes. */
static void progress_ends(psc_worker_t *worker)
{
    psc_access_progress(worker);
    psc_lane_progress_retiring(worker, false);
    psc_conn_reap(worker);
    worker->ending = !psc_list_empty(&worker->revoking) ||
                     !psc_list_empty(&worker->retiring) ||
                     !psc_list_empty(&worker->doomed);
}

unsigned psc_worker_pass(psc_worker_t *worker, psc_ifaces_t ifaces)
{
    unsigned n = 0;

    worker->pass++;
    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        if (ifaces.bits ? ifaces.bits >> i & 1
                        : progress_due(slot, worker->pass))
            n += slot->ops->progress(slot->iface);
    }
    if (!psc_list_empty(&worker->busy)) {
        psc_list_for_each(conn, &worker->busy, psc_conn_t, busy_link)
            n += psc_conn_flush(conn);
    }
    if (worker->ending)
        progress_ends(worker);
    worker->restless = n > 0;
    return n;
}

unsigned psc_worker_progress_locked(psc_worker_t *worker, psc_ifaces_t ifaces)
{
    unsigned n = psc_worker_pass(worker, ifaces);

    psc_settle(worker);
    return n;
}

void psc_worker_wake(psc_worker_t *worker)
{
    if (atomic_load(&worker->forked))
        return;
    atomic_fetch_add(&worker->wait.wakes, 1);
    psc_worker_mail(worker);
}
