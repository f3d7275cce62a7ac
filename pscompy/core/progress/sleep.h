/* Sleepers, and the one rule by which they are woken.
 *
 * A sleeper is a set of descriptors, those of all fabrics and a bell of its
 * own, for a thread that has nothing to do until one of them is readable. It
 * arms before it sleeps: the fabrics then fire their descriptors for whatever
 * arrives next. Every pass over the fabrics uses that up, whoever makes it.
 *
 * The rule. All of it happens with the worker's lock held:
 *  1. What a sleeper waits for changes together with the wake generation, and
 *     that rings the bell of every armed sleeper. A rung one is not armed any
 *     more.
 *  2. A sleeper arms only if the generation is still the one at which it
 *     looked; or it looks after it has armed.
 *  3. Whoever has used up what was armed settles that: the fabrics are armed
 *     again, for all, or every armed sleeper is rung. It does so before it
 *     stops to poll; each function of psc_api_t, before it returns.
 *  4. Work that is queued, which arming did not know of, rings them, too.
 * Threads that follow the poller sleep on the generation itself, and arm by
 * saying so; they look at the poller's role after that.
 * tests/core/wake_model.py tries all orders of these steps. */
#ifndef PSCOMPY_CORE_SLEEP_H
#define PSCOMPY_CORE_SLEEP_H

#include "../types/worker.h"

/* ---- with the lock held ---- */

/* Returns -1 with errno; psc_sleeper_close unlinks it in either case. */
int psc_sleeper_open(psc_sleeper_t *sleeper, psc_worker_t *worker);
void psc_sleeper_close(psc_sleeper_t *sleeper);
void psc_sleeper_free(psc_sleeper_t *sleeper);
/* Its owner releases it: whoever ends last, worker or owner, frees it. Returns
 * true if it is freed; needs no lock. */
bool psc_sleeper_drop(psc_sleeper_t *sleeper);
/* The owner looks now, or will before it sleeps. */
void psc_sleeper_look(psc_sleeper_t *sleeper);
/* PSC_ERR_NO_RESOURCE: there is something. What others have armed may be used
 * up then. */
psc_status_t psc_sleeper_try(psc_sleeper_t *sleeper, uint32_t wants);
/* The owner is awake. */
void psc_sleeper_disarm(psc_sleeper_t *sleeper);
/* Ring those that want one of these. */
void psc_wake_sleepers(psc_worker_t *worker, uint32_t reasons);
/* Sleepers have armed, and that is used up: arm for them, or ring them. */
void psc_sleepers_settle(psc_worker_t *worker);
/* Add a descriptor to the sets of all sleepers; -1 with errno. */
int psc_sleepers_watch(psc_worker_t *worker, int fd, uint32_t ifaces);
/* Free those that were released. */
void psc_sleepers_bury(psc_worker_t *worker);
/* The poller's and the control thread's, as the worker begins: 0, or -1 with
 * errno; and the end of all. */
int psc_sleepers_open(psc_worker_t *worker);
void psc_sleepers_close(psc_worker_t *worker);

/* With the lock held. */
static inline void psc_generation_next(psc_worker_t *worker)
{
    atomic_uint *generation = &worker->wait.generation;
    unsigned next = atomic_load_explicit(generation, memory_order_relaxed) + 1;

    /* whoever reads the new one sees what has changed with it */
    atomic_store_explicit(generation, next, memory_order_release);
}

/* With the lock held: wake the sleepers that want one of these reasons. */
static inline void psc_wake(psc_worker_t *worker, uint32_t reasons)
{
    if (reasons & PSC_WAKE_NEWS)
        psc_generation_next(worker);
    if (atomic_load_explicit(&worker->wait.wanted, memory_order_relaxed) &
        reasons)
        psc_wake_sleepers(worker, reasons);
}

/* With the lock held, after passes: rule 3 of sleep.h. */
static inline void psc_settle(psc_worker_t *worker)
{
    if (atomic_load_explicit(&worker->wait.wanted, memory_order_relaxed) &
        (PSC_WAKE_SPENT | PSC_WAKE_POLLED))
        psc_sleepers_settle(worker);
}

#endif
