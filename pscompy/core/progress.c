/* Progress: one pass over the interfaces and the queued work; the descriptors
 * that tell when the next one is due, and arming them. */
#include "access.h"

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

unsigned psc_worker_pass(psc_worker_t *worker, uint32_t ifaces)
{
    unsigned n = 0;

    worker->pass++;
    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        if (ifaces == PSC_PASS_DUE ? progress_due(slot, worker->pass)
                                   : ifaces >> i & 1)
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

/* What a pass finds is gone from the descriptor that another thread may be
 * sleeping on, and what was armed is used up: it has to look again. */
unsigned psc_worker_progress_locked(psc_worker_t *worker, uint32_t ifaces)
{
    unsigned n = psc_worker_pass(worker, ifaces);

    psc_wait_kick_poller(worker);
    return n;
}

unsigned psc_worker_progress(psc_worker_t *worker)
{
    unsigned n;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    n = psc_worker_progress_locked(worker, PSC_PASS_ALL);
    psc_worker_leave(worker);
    return n;
}

/* ---- arming ---- */

int psc_worker_fd(psc_worker_t *worker)
{
    return worker->epoll_fd;
}

psc_status_t psc_worker_arm_fabric_locked(psc_worker_t *worker)
{
    if (worker->restless || atomic_load(&worker->inbox) ||
        atomic_load(&worker->returned))
        return PSC_ERR_NO_RESOURCE;
    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        if (!(slot->attr.caps & PSC_CAP_EVENT)) {
            if (slot->lanes > 0)
                return PSC_ERR_NO_RESOURCE;
            continue;
        }
        if (slot->ops->arm(slot->iface) != PSC_OK)
            return PSC_ERR_NO_RESOURCE;
    }
    return PSC_OK;
}

psc_status_t psc_worker_arm_locked(psc_worker_t *worker)
{
    if (atomic_load(&worker->n_completions) ||
        atomic_load(&worker->n_messages))
        return PSC_ERR_NO_RESOURCE;
    return psc_worker_arm_fabric_locked(worker);
}

int psc_worker_fabric_fd(psc_worker_t *worker)
{
    return worker->fabric_fd;
}

int psc_worker_arm_fabric(psc_worker_t *worker)
{
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_worker_arm_fabric_locked(worker);
    psc_worker_leave(worker);
    return status;
}

psc_status_t psc_worker_arm(psc_worker_t *worker)
{
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    if (atomic_exchange(&worker->wait.armed, 1) == 0) /* before the look */
        psc_worker_clear(worker->alarm_fd);
    status = psc_worker_arm_locked(worker);
    psc_worker_leave(worker);
    return status;
}

void psc_worker_wake(psc_worker_t *worker)
{
    if (atomic_load(&worker->forked))
        return;
    atomic_fetch_add(&worker->wait.wakes, 1);
    psc_wait_notify(worker);
}
