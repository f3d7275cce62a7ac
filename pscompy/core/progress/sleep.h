/* Sleepers, and the rule by which they are woken.
 *
 * A sleeper is an epoll set for one thread: the event descriptors of all
 * fabrics and a doorbell (an eventfd) of its own. The thread arms the sleeper
 * before it sleeps on the set; each fabric then makes its descriptor readable
 * when data arrives. Any pass over the fabrics, by any thread, disarms them:
 * the sleeper must be armed again, or its doorbell rung.
 *
 * The rule. All of it happens with the worker's lock held:
 *  1. A change that a sleeper may wait for also increments the wake generation
 *     and rings the doorbell of every armed sleeper that wants PSC_WAKE_EVENT.
 *     A rung sleeper is no longer armed.
 *  2. A sleeper arms only if the generation is unchanged since its owner last
 *     looked, or the owner looks after arming.
 *  3. A thread that polled settles afterwards (psc_settle): it arms the fabrics
 *     again on behalf of all armed sleepers, or else rings them. It does so
 *     before it stops polling; the functions of psc_api_t do so before they
 *     return.
 *  4. Work that is queued after arming rings the sleepers, too.
 *
 * Threads that wait while another thread holds the poller's role (polls for
 * all) are followers (follow.h). Each sleeps on a futex word of its own:
 *  5. A request that changes wakes the follower that waits for it. A follower
 *     arms with the lock held, after it has looked at its requests; then it
 *     looks at the role. Before arming it may watch both without the lock.
 *  6. A thread that gives the role back wakes one follower. A follower that
 *     returns passes this on: if the role is free it wakes another.
 *
 * A thread that polls without taking what is queued (PSC_WAIT_OWN) arms
 * although something is queued:
 *  7. After each pass it wakes one of the followers that return for what is
 *     queued, and that have looked at the queues with the lock held.
 *
 * A thread that makes background progress (background.h) is a sleeper while no
 * other thread holds the role:
 *  8. If the holder of the role sleeps, the background thread arms for
 *     PSC_WAKE_FREE and PSC_WAKE_EVENT, then looks at its request and at the
 *     queues; giving the role back rings its doorbell. While the holder is
 *     awake, the background thread looks again repeatedly.
 * tests/core/wake_model.py tries all orders of these steps. */
#pragma once

#include "../types/worker.h"

/* ---- with the lock held ---- */

/* Returns 0, or -1 with errno. The sleeper is linked into the worker's list
 * even on failure; psc_sleeper_close unlinks it. */
int psc_sleeper_open(psc_sleeper_t *sleeper, psc_worker_t *worker);
void psc_sleeper_close(psc_sleeper_t *sleeper);
void psc_sleeper_free(psc_sleeper_t *sleeper);
/* Release a sleeper by its owner: the owner or the worker frees it, whichever
 * ends last. Returns true if the sleeper was freed here. Needs no lock. */
bool psc_sleeper_drop(psc_sleeper_t *sleeper);
/* Record the current wake generation in the sleeper: its owner looks at its
 * requests now, or will look before it sleeps. */
void psc_sleeper_look(psc_sleeper_t *sleeper);
/* Arm a sleeper. Returns PSC_ERR_NO_RESOURCE if something is pending already;
 * the arming of other sleepers may then be used up, so call psc_settle. */
psc_status_t psc_sleeper_try(psc_sleeper_t *sleeper, uint32_t wants);
/* Disarm a sleeper whose owner is awake, and clear its doorbell. */
void psc_sleeper_disarm(psc_sleeper_t *sleeper);
/* Wake the sleepers (by their doorbells) and the followers that want one of
 * these reasons. */
void psc_wake_sleepers(psc_worker_t *worker, uint32_t reasons);
/* Wake the sleepers that want PSC_WAKE_POLLED. Then arm the fabrics again on
 * behalf of the other armed sleepers, or wake those by their doorbells if
 * something is pending. Called by psc_settle. */
void psc_sleepers_settle(psc_worker_t *worker);
/* Let all sleepers watch an interface. Returns 0, or -1 with errno. */
int psc_sleepers_watch(psc_worker_t *worker, const psc_iface_slot_t *slot);
/* Free the sleepers that their owners have released. */
void psc_sleepers_bury(psc_worker_t *worker);
/* Open the poller's and the control thread's sleeper when the worker is
 * created; returns 0, or -1 with errno. psc_sleepers_close ends all sleepers of
 * the worker. */
int psc_sleepers_open(psc_worker_t *worker);
void psc_sleepers_close(psc_worker_t *worker);

/* Needs no lock. Returns true if completion_poll or message_poll has
 * something. */
static inline bool psc_worker_pending(const psc_worker_t *worker)
{
    return atomic_load_explicit(&worker->requests.completions.n,
                                memory_order_relaxed) ||
           atomic_load_explicit(&worker->am.n_queued, memory_order_relaxed);
}

/* With the lock held: begin a new wake generation. */
static inline void psc_generation_next(psc_worker_t *worker)
{
    atomic_uint *generation = &worker->wait.generation;
    unsigned next = atomic_load_explicit(generation, memory_order_relaxed) + 1;

    /* A thread that reads the new generation also sees the changes made before
     * it was stored. */
    atomic_store_explicit(generation, next, memory_order_release);
}

/* With the lock held: wake the sleepers that want one of these reasons. */
static inline void psc_wake(psc_worker_t *worker, uint32_t reasons)
{
    if (reasons & PSC_WAKE_EVENT)
        psc_generation_next(worker);
    if (atomic_load_explicit(&worker->wait.wanted, memory_order_relaxed) &
        reasons)
        psc_wake_sleepers(worker, reasons);
}

/* With the lock held, after passes: apply rule 3 at the top of this file. */
static inline void psc_settle(psc_worker_t *worker)
{
    if (atomic_load_explicit(&worker->wait.wanted, memory_order_relaxed) &
        (PSC_WAKE_SPENT | PSC_WAKE_POLLED))
        psc_sleepers_settle(worker);
}
