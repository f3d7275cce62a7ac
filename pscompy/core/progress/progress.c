/* Progress: one pass over the interfaces and the queued work. */
#include "progress.h"

#include "../conn.h"
#include "../lane.h"
#include "../memory/memory.h"
#include "../upward.h"

/* ---- passes ---- */

/* Returns true if the interface is to be polled in this pass. Adding the index
 * spreads interfaces that are polled rarely over different passes. */
static bool progress_due(psc_iface_slot_t *slot, uint32_t pass)
{
    if (((pass + slot->index) & (slot->every - 1)) == 0)
        return slot->lanes > 0;
    if (slot->awake == 0)
        return false;
    slot->awake--;
    return slot->lanes > 0;
}

static unsigned progress_poll(psc_iface_slot_t *slot)
{
    unsigned n = slot->ops->progress(slot->iface);

    if (n > 0)
        slot->awake = slot->linger;
    return n;
}

/* The order matters: a lane is freed after the requests that wait for its peer,
 * a connection after its lanes. */
static void progress_ends(psc_worker_t *worker)
{
    psc_access_progress(worker);
    psc_lane_progress_retiring(worker, false);
    psc_conn_reap(worker);
    psc_ends_update(&worker->ends);
}

unsigned psc_worker_pass(psc_worker_t *worker, psc_ifaces_t ifaces)
{
    unsigned n = 0;

    worker->pass++;
    psc_iface_for_each(slot, &worker->interfaces) {
        if (ifaces.bits ? ifaces.bits & psc_iface_bit(slot).bits
                        : progress_due(slot, worker->pass))
            n += progress_poll(slot);
    }
    if (!psc_list_empty(&worker->busy))
        n += psc_conns_flush(worker);
    if (!psc_list_empty(&worker->runs.ready))
        n += worker->runs.engine->advance(worker);
    if (worker->ends.any)
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
