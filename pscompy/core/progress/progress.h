/* Progress, and waiting for it: one thread polls, the others sleep until their
 * own request is done or until they may poll. */
#pragma once

#include "../types/interfaces.h"
#include "../types/worker.h"

/* ---- pace.c ---- */

/* How often each interface is polled. */

/* Decide how often each interface is polled, and how many passes are made
 * between two clock reads. Called after a lane was added or removed. */
void psc_interfaces_pace(psc_interfaces_t *interfaces, int64_t spin_ns);

/* ---- spin.c ---- */

/* Spinning: how long it pays to poll before sleeping. */

/* The state of one thread's polling, from psc_spin_begin until it sleeps. */
typedef struct psc_spin {
    /* when to stop spinning; 0: the clock has not been read yet */
    int64_t until;
    int64_t deadline; /* time at which the wait times out */
    unsigned passes;  /* passes left until the next clock read */
    uint64_t away;    /* cycles spent in sched_yield */
    /* number of calls of sched_yield in which another thread ran */
    unsigned taken;
} psc_spin_t;

/* Let waiting threads spin for `ns` nanoseconds from now, because a peer is
 * expected to copy for so long and to report the end: sleeping meanwhile, to be
 * woken soon, would cost more than it saves. */
void psc_spin_expect(psc_worker_t *worker, double ns);
void psc_spin_begin(psc_worker_t *worker, psc_spin_t *spin, int64_t deadline);
/* Call after a pass of polling that found nothing. Returns false if it is time
 * to sleep. */
bool psc_spin_on(psc_worker_t *worker, psc_spin_t *spin);
/* Returns how many of `passes` passes to make for a request with the GIL held,
 * which keeps other Python threads from running. */
unsigned psc_spin_limit(psc_worker_t *worker, unsigned passes);
/* Returns true if a receive that has made `passes` passes in a row with the GIL
 * held is to make another. */
bool psc_spin_held(psc_worker_t *worker, unsigned passes);
/* Call after `passes` passes with the GIL held; found: whether they have found
 * the awaited event. */
void psc_spin_held_end(psc_worker_t *worker, unsigned passes, bool found);

/* ---- follow.c ---- */

/* Followers: threads that wait while another thread polls. Each sleeps on a
 * futex word of its own, on its stack, and is woken if a request that it waits
 * for has changed, or if it is the one that may take the poller's role (to poll
 * for all). With the worker's lock held; the rule is in section sleep.c. */

/* Arm a follower that sleeps until one of the `n` requests changes, and that
 * has looked at the requests with the lock held. `more` are other reasons
 * (PSC_WAKE_) to wake it. */
void psc_follower_arm(psc_worker_t *worker, psc_follower_t *follower,
                      psc_request_t *const *requests, size_t n, uint32_t more);
/* Take a follower, which does not sleep any more, out of the worker's list,
 * unless it was woken. Returns false if it was woken. */
bool psc_follower_disarm(psc_follower_t *follower);
/* Wake a follower; its memory may be gone as soon as the function returns. The
 * thread is awake at the latest when the lock has been released. */
void psc_follower_wake(psc_worker_t *worker, psc_follower_t *follower);
/* Wake followers for these PSC_WAKE_ reasons: the earliest one if the poller's
 * role is free or something is queued, all if every wait ends. */
void psc_followers_wake(psc_worker_t *worker, uint32_t reasons);

static inline bool psc_follower_woken(psc_follower_t *follower)
{
    return atomic_load(&follower->woken);
}

/* ---- sleep.c ---- */

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
 * all) are followers (follow.c). Each sleeps on a futex word of its own:
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
 * A thread that makes background progress (background.c) is a sleeper while no
 * other thread holds the role:
 *  8. If the holder of the role sleeps, the background thread arms for
 *     PSC_WAKE_FREE and PSC_WAKE_EVENT, then looks at its request and at the
 *     queues; giving the role back rings its doorbell. While the holder is
 *     awake, the background thread looks again repeatedly.
 * tests/core/wake_model.py tries all orders of these steps. */

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

/* ---- progress.c ---- */

/* Progress: one pass over the interfaces and the queued work. */

/* Values for the argument `ifaces` of the functions below. PSC_PASS_DUE: poll
 * the interfaces whose turn it is in this pass (psc_iface_slot_t.every).
 * PSC_PASS_ALL: poll every interface. */
#define PSC_PASS_DUE ((psc_ifaces_t){0})
#define PSC_PASS_ALL ((psc_ifaces_t){UINT32_MAX})

/* With the lock held: poll these interfaces once. A pass disarms all
 * sleepers (sleep.c). psc_worker_progress_locked therefore calls psc_settle;
 * after psc_worker_pass the caller must poll again, arm, or call psc_settle. */
unsigned psc_worker_pass(psc_worker_t *worker, psc_ifaces_t ifaces);
unsigned psc_worker_progress_locked(psc_worker_t *worker, psc_ifaces_t ifaces);

/* ---- background.c ---- */

/* Driving a worker while no other thread does: for the progress thread, and for
 * a thread that runs the program's call-backs while the program computes.
 *
 * A background thread never competes with the program. While another thread
 * holds the poller's role (polls for all), the background thread does not poll:
 * it checks the role from time to time or, if the holder sleeps on the fabrics,
 * sleeps until the role is free. While the role is free, the background thread
 * is a sleeper (sleep.c) on the fabrics and polls them; its doorbell rings when
 * a thread takes the role. */

typedef struct psc_background psc_background_t;

struct psc_background {
    psc_sleeper_t *sleeper;
    /* PSC_WAKE_ bits of the sleeper while it is armed. With PSC_WAKE_POLLED the
     * background thread also stops polling for a while when another thread has
     * polled. */
    uint32_t wants;
    /* If no thread has polled for this time, the background thread assumes that
     * the program is computing, and polls. */
    int64_t patience_ns;
    int64_t deadline; /* deadline of all sleeps; INT64_MAX: none */
    /* returns true to end psc_background */
    bool (*ended)(psc_background_t *self);
};

/* Poll in place of the program until ended() is true. With PSC_WAKE_EVENT it
 * also returns if completion_poll or message_poll has something that no other
 * thread takes. */
void psc_background(psc_background_t *self);

/* ---- sleeper.c ---- */

/* The sleeper functions of psc_api_t; control.h declares those of the control
 * thread. Each function takes the lock. */

psc_status_t psc_sleeper_create(psc_worker_t *worker,
                                psc_sleeper_t **sleeper_p);
void psc_sleeper_release(psc_worker_t *worker, psc_sleeper_t *sleeper);
int psc_sleeper_descriptor(const psc_sleeper_t *sleeper);
psc_status_t psc_sleeper_arm(psc_sleeper_t *sleeper);
unsigned psc_sleeper_progress(psc_sleeper_t *sleeper);
psc_status_t psc_sleeper_wait(psc_sleeper_t *sleeper, psc_request_t *request,
                              int64_t timeout_ns);
psc_status_t psc_worker_arm(psc_worker_t *worker);

/* ---- thread.c ---- */

/* Declares the function that stops the progress thread; the function that
 * starts it is in control.h. */

void psc_thread_stop(psc_worker_t *worker);

/* ---- wait.c ---- */

/* Blocking until requests have ended: wait and linger of psc_api_t. */

bool psc_wait_linger(psc_worker_t *worker, psc_request_t *request, int64_t ns);
psc_status_t psc_wait_requests(psc_worker_t *worker,
                               psc_request_t *const *requests, size_t n,
                               psc_wait_mode_t mode, int64_t timeout_ns);
