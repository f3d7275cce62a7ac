/* Waiting: spin for a while, then sleep on a set of descriptors.
 *
 * At most one thread polls; it holds the poller's role. The others follow:
 * each watches its request and the role for as long as spinning pays. Then it
 * sleeps until its request is done, or until it is the one that may take the
 * role. The lock is held for one progress pass at a time, never while
 * sleeping. The rule by which no wake-up is lost is in progress.h: the poller
 * is a sleeper that looks at its requests after arming; a follower looks at its
 * requests with the lock held and arms before it releases the lock. */
#include "progress.h"

#include <sys/epoll.h>

#include "../worker.h"
#include "pscompy/transport/kit/clock.h"

/* A signal that arrives just before the sleep does not interrupt it. So each
 * sleep ends after a slice as if interrupted, and the caller checks for
 * signals. This bounds how long a Ctrl-C can stay unnoticed. */
#define WAIT_SLICE_NS 500000000

typedef struct wait_goal {
    psc_request_t *const *requests;
    /* with PSC_WAIT_ALL the requests before the index `first` are done */
    size_t n, first;
    /* the waits for the requests from index `counted_from` on are counted
     * (psc_request_count_wait) */
    bool counted;
    size_t counted_from;
    psc_wait_mode_t mode;
    bool own; /* PSC_WAIT_OWN */
    unsigned wakes; /* psc_wait_state_t.wakes when the wait began */
    int64_t deadline;
} wait_goal_t;

static bool wait_reached(wait_goal_t *goal)
{
    if (goal->mode == PSC_WAIT_ANY) {
        for (size_t i = 0; i < goal->n; i++) {
            if (psc_request_state(goal->requests[i]) != PSC_REQUEST_ACTIVE)
                return true;
        }
        return false;
    }
    while (goal->first < goal->n &&
           psc_request_state(goal->requests[goal->first]) != PSC_REQUEST_ACTIVE)
        goal->first++;
    return goal->first == goal->n;
}

/* ---- the requests as reports see them ---- */

static void wait_count(const wait_goal_t *goal, int change)
{
    for (size_t i = goal->counted_from; i < goal->n; i++)
        psc_request_count_wait(goal->requests[i], change);
}

/* The thread is about to sleep. */
static void wait_begin_count(wait_goal_t *goal)
{
    if (goal->counted)
        return;
    goal->counted = true;
    goal->counted_from = goal->first;
    wait_count(goal, +1);
}

static void wait_end_count(const wait_goal_t *goal)
{
    if (goal->counted)
        wait_count(goal, -1);
}

/* ---- polling ---- */

/* Returns PSC_OK if psc_wait_requests is to return *result_p, PSC_INPROGRESS if
 * it is to go on waiting. */
static psc_status_t wait_look(psc_worker_t *worker, wait_goal_t *goal,
                              psc_status_t *result_p)
{
    if (wait_reached(goal))
        *result_p = PSC_OK;
    else if (!goal->own && psc_worker_pending(worker))
        *result_p = PSC_INPROGRESS;
    else if (atomic_load(&worker->wait.wakes) != goal->wakes)
        *result_p = PSC_ERR_INTERRUPTED;
    else
        return PSC_INPROGRESS;
    return PSC_OK;
}

/* With the lock held, after a pass by a thread that does not take what is
 * queued: wake one that does (rule 7 in progress.h). */
static void wait_hand_on(psc_worker_t *worker, const wait_goal_t *goal)
{
    if (goal->own && psc_worker_pending(worker))
        psc_wake(worker, PSC_WAKE_QUEUED);
}

static unsigned wait_pass(psc_worker_t *worker, const wait_goal_t *goal)
{
    unsigned n;

    psc_lock_acquire(&worker->lock);
    n = psc_worker_pass(worker, PSC_PASS_DUE);
    wait_hand_on(worker, goal);
    psc_worker_leave(worker);
    return n;
}

/* Poll until this thread's wait is to return (PSC_OK), or spinning does not pay
 * any more (PSC_INPROGRESS). */
static psc_status_t wait_spin(psc_worker_t *worker, wait_goal_t *goal,
                              psc_status_t *result_p)
{
    psc_spin_t spin;
    bool moved = true;

    do {
        if (moved) /* a pass that finds something restarts the spin time */
            psc_spin_begin(worker, &spin, goal->deadline);
        if (wait_look(worker, goal, result_p) == PSC_OK)
            return PSC_OK;
        moved = wait_pass(worker, goal) > 0;
    } while (moved || psc_spin_on(worker, &spin));
    return PSC_INPROGRESS;
}

static int wait_milliseconds(int64_t deadline)
{
    int64_t left =
        deadline == INT64_MAX ? WAIT_SLICE_NS : deadline - psc_clock_now();

    if (left <= 0)
        return 0;
    if (left > WAIT_SLICE_NS)
        left = WAIT_SLICE_NS;
    return (int)((left + 999999) / 1000000);
}

/* Arm the poller's sleeper. If that fails, poll all interfaces, also those
 * without lanes: the one that could not be armed has something to do. */
static psc_status_t wait_arm(psc_worker_t *worker, const wait_goal_t *goal)
{
    psc_sleeper_t *self = &worker->wait.poller;
    uint32_t own = goal->own ? PSC_WAKE_OWN : 0;
    psc_status_t status;

    psc_lock_acquire(&worker->lock);
    psc_sleeper_look(self); /* the poller looks at its requests after arming */
    status = psc_sleeper_try(self, PSC_WAKE_SPENT | PSC_WAKE_EVENT | own);
    if (status != PSC_OK)
        psc_worker_pass(worker, PSC_PASS_ALL);
    wait_hand_on(worker, goal);
    psc_worker_leave(worker);
    return status;
}

static void wait_count_late(psc_worker_t *worker)
{
    worker->counters.value[PSC_COUNTER_late_wakeups]++;
}

/* The poller's sleep has timed out, so no event should be pending. Count a late
 * wake-up if one is. */
static void wait_look_late(psc_worker_t *worker, wait_goal_t *goal)
{
    bool found = psc_worker_pass(worker, PSC_PASS_ALL) > 0;

    if (psc_clock_now() < goal->deadline && (found || wait_reached(goal)))
        wait_count_late(worker);
}

/* Sleep until a descriptor is readable, then poll the interfaces that it
 * belongs to. Returns false if a signal or the end of the slice ended the
 * sleep. */
static bool wait_doze(psc_worker_t *worker, wait_goal_t *goal)
{
    struct epoll_event events[PSC_IFACES_MAX + 1];
    psc_sleeper_t *self = &worker->wait.poller;
    psc_ifaces_t ready = {0};
    int n = epoll_wait(self->set, events, PSC_IFACES_MAX + 1,
                       wait_milliseconds(goal->deadline));

    psc_lock_acquire(&worker->lock);
    /* An event that arrived after the time slice had ended does not count as a
     * late wake-up. */
    if (n == 0)
        n = epoll_wait(self->set, events, PSC_IFACES_MAX + 1, 0);
    for (int i = 0; i < n; i++)
        ready.bits |= events[i].data.u32;
    psc_sleeper_disarm(self);
    if (n == 0)
        wait_look_late(worker, goal);
    else if (ready.bits)
        psc_worker_pass(worker, ready);
    wait_hand_on(worker, goal);
    psc_worker_leave(worker);
    return n > 0;
}

static void wait_stay_awake(psc_worker_t *worker)
{
    psc_lock_acquire(&worker->lock);
    psc_sleeper_disarm(&worker->wait.poller);
    psc_worker_leave(worker);
}

static psc_status_t wait_sleep(psc_worker_t *worker, wait_goal_t *goal,
                               psc_status_t *result_p)
{
    wait_begin_count(goal);
    if (wait_arm(worker, goal) != PSC_OK)
        return PSC_INPROGRESS;
    if (wait_look(worker, goal, result_p) == PSC_OK) {
        wait_stay_awake(worker);
        return PSC_OK;
    }
    if (wait_doze(worker, goal))
        return PSC_INPROGRESS;
    *result_p = PSC_ERR_INTERRUPTED;
    return PSC_OK;
}

/* Poll for all waiting threads, as the holder of the poller's role, until this
 * thread's wait is to return. */
static psc_status_t wait_poll(psc_worker_t *worker, wait_goal_t *goal)
{
    psc_status_t result = PSC_OK;

    for (;;) {
        if (wait_spin(worker, goal, &result) == PSC_OK)
            return result;
        if (psc_clock_now() >= goal->deadline)
            return PSC_ERR_TIMEOUT;
        if (wait_sleep(worker, goal, &result) == PSC_OK &&
            psc_clock_now() < goal->deadline)
            return result;
        if (atomic_load(&worker->forked))
            return PSC_ERR_FORKED;
    }
}

/* ---- the poller's role ---- */

static bool wait_take_role(psc_worker_t *worker, const wait_goal_t *goal)
{
    unsigned nobody = 0;

    if (!atomic_compare_exchange_strong(&worker->wait.polling, &nobody,
                                        goal->own ? PSC_POLLING_OWN
                                                  : PSC_POLLING))
        return false;
    if (atomic_load(&worker->wait.wanted) & PSC_WAKE_TAKEN) {
        psc_lock_acquire(&worker->lock);
        psc_wake(worker, PSC_WAKE_TAKEN);
        psc_worker_leave(worker);
    }
    return true;
}

static void wait_give_role(psc_worker_t *worker)
{
    atomic_store(&worker->wait.polling, 0);
    if (atomic_load(&worker->wait.wanted) == 0)
        return;
    psc_lock_acquire(&worker->lock);
    psc_wake(worker, PSC_WAKE_FREE);
    psc_settle(worker);
    psc_worker_leave(worker);
}

static psc_status_t wait_with_role(psc_worker_t *worker, wait_goal_t *goal)
{
    psc_status_t result = wait_poll(worker, goal);

    wait_give_role(worker);
    return result;
}

/* ---- threads that do not hold the poller's role ---- */

/* How often a follower tries to take the lock before it sleeps on the lock. The
 * poller takes and releases the lock all the time, and would have to wake the
 * follower; a few more tries are cheaper. */
#define WAIT_TRIES 100

static void wait_lock(psc_worker_t *worker)
{
    for (int i = 0; i < WAIT_TRIES; i++) {
        if (psc_lock_try(&worker->lock))
            return;
        psc_clock_pause();
    }
    psc_lock_acquire(&worker->lock);
}

/* The follower's sleep has ended without a wake-up. Count a late wake-up if one
 * of its requests has ended. */
static void wait_look_alone(psc_worker_t *worker, psc_follower_t *self,
                            wait_goal_t *goal)
{
    bool missed;

    wait_lock(worker);
    missed = psc_follower_disarm(self) && wait_reached(goal);
    if (missed && psc_clock_now() < goal->deadline)
        wait_count_late(worker);
    psc_worker_leave(worker);
}

/* Watch the requests and the poller's role without being armed, so that the
 * poller needs no system call to wake this thread. Returns false if it is time
 * to sleep. */
static bool wait_watch(psc_worker_t *worker, wait_goal_t *goal)
{
    psc_status_t ignored;
    psc_spin_t spin;

    psc_spin_begin(worker, &spin, goal->deadline);
    do {
        if (!atomic_load(&worker->wait.polling) ||
            wait_look(worker, goal, &ignored) == PSC_OK)
            return true;
    } while (psc_spin_on(worker, &spin));
    return false;
}

/* Another thread polls: wait until a request has changed or the role is
 * free. */
static psc_status_t wait_follow(psc_worker_t *worker, wait_goal_t *goal,
                                psc_status_t *result_p)
{
    struct timespec slice;
    psc_follower_t self;
    bool asleep = true;
    int ms;

    if (wait_watch(worker, goal))
        return PSC_INPROGRESS;
    ms = wait_milliseconds(goal->deadline);
    slice = (struct timespec){ms / 1000, ms % 1000 * 1000000L};
    *result_p = PSC_ERR_TIMEOUT;
    if (ms == 0)
        return PSC_OK;
    wait_begin_count(goal);
    wait_lock(worker);
    if (wait_look(worker, goal, result_p) == PSC_OK) {
        psc_worker_leave(worker);
        return PSC_OK;
    }
    psc_follower_arm(worker, &self, goal->requests + goal->first,
                     goal->mode == PSC_WAIT_ALL ? 1 : goal->n,
                     goal->own ? 0 : PSC_WAKE_QUEUED);
    psc_worker_leave(worker);
    while (asleep && atomic_load(&worker->wait.polling) &&
           !psc_follower_woken(&self))
        asleep = psc_futex_wait(&self.woken, 0, &slice);
    if (psc_follower_woken(&self))
        return PSC_INPROGRESS;
    wait_look_alone(worker, &self, goal);
    *result_p = PSC_ERR_INTERRUPTED;
    return asleep ? PSC_INPROGRESS : PSC_OK;
}

/* Wake another follower if the poller's role is free, because this thread may
 * have been woken to take the role, but returns. */
static void wait_pass_role(psc_worker_t *worker)
{
    if (atomic_load(&worker->wait.polling) ||
        !(atomic_load(&worker->wait.wanted) & PSC_WAKE_FREE))
        return;
    psc_lock_acquire(&worker->lock);
    psc_wake(worker, PSC_WAKE_FREE);
    psc_worker_leave(worker);
}

static psc_status_t wait_until(psc_worker_t *worker, wait_goal_t *goal)
{
    psc_status_t result = PSC_OK;

    do {
        if (wait_take_role(worker, goal))
            return wait_with_role(worker, goal);
    } while (wait_follow(worker, goal, &result) != PSC_OK &&
             wait_look(worker, goal, &result) != PSC_OK);
    wait_pass_role(worker);
    return result;
}

psc_status_t psc_wait_requests(psc_worker_t *worker,
                               psc_request_t *const *requests, size_t n,
                               psc_wait_mode_t mode, int64_t timeout_ns)
{
    wait_goal_t goal = {.requests = requests,
                        .n = n,
                        .mode = mode & ~PSC_WAIT_OWN,
                        .own = mode & PSC_WAIT_OWN,
                        .wakes = atomic_load(&worker->wait.wakes),
                        .deadline = psc_clock_deadline(timeout_ns)};
    psc_status_t result = PSC_OK;

    if (atomic_load(&worker->forked))
        return PSC_ERR_FORKED;
    if (wait_look(worker, &goal, &result) == PSC_OK)
        return result;
    result = wait_until(worker, &goal);
    wait_end_count(&goal);
    return result;
}

bool psc_wait_linger(psc_worker_t *worker, psc_request_t *request, int64_t ns)
{
    wait_goal_t goal = {.requests = &request,
                        .n = 1,
                        .mode = PSC_WAIT_ALL,
                        .wakes = atomic_load(&worker->wait.wakes),
                        .deadline = psc_clock_deadline(ns)};
    psc_status_t ignored;

    if (atomic_load(&worker->forked) || worker->config.spin_ns == 0)
        return false;
    if (wait_take_role(worker, &goal)) {
        wait_spin(worker, &goal, &ignored);
        wait_give_role(worker);
    }
    return psc_request_state(request) != PSC_REQUEST_ACTIVE;
}
