/* Waiting: spin for a while, then sleep on the worker's descriptor.
 *
 * At most one thread polls; it has the poller's role. The others sleep on the
 * baton (a futex word) until their request is done or the role is free, and
 * one inherits it. The lock is held for one progress pass at a time, never
 * while sleeping. Lost wake-ups: the poller arms the interfaces and looks at
 * its requests after that, before it sleeps; what happens later fires the
 * descriptor. A thread that completes or posts something for a sleeping
 * poller kicks it. */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "parts/clock.h"
#include "worker.h"

/* A signal that arrives just before the sleep does not interrupt it. So the
 * sleep ends after a slice, as if interrupted, and the caller looks for
 * signals: this bounds how long a Ctrl-C can stay unnoticed. */
#define WAIT_SLICE_NS 500000000

typedef struct wait_goal {
    psc_request_t *const *requests;
    size_t n, first; /* requests before `first` are done (mode ALL) */
    psc_wait_mode_t mode;
    unsigned wakes; /* the worker's, when the wait began */
    int64_t deadline;
} wait_goal_t;

void psc_wait_kick_poller(psc_worker_t *worker)
{
    if (atomic_load(&worker->wait.sleeping) &&
        atomic_exchange(&worker->wait.sleeping, 0))
        psc_worker_signal(worker->wake_fd);
    psc_thread_nudge(worker);
}

void psc_wait_kick(psc_worker_t *worker)
{
    psc_wait_kick_poller(worker);
    if (atomic_load(&worker->wait.armed) &&
        atomic_exchange(&worker->wait.armed, 0))
        psc_worker_signal(worker->alarm_fd);
}

void psc_wait_notify(psc_worker_t *worker)
{
    psc_wait_kick(worker);
    if (atomic_load_explicit(&worker->wait.waiters, memory_order_relaxed) == 0)
        return;
    atomic_fetch_add(&worker->wait.baton, 1);
    psc_futex_wake(&worker->wait.baton, INT32_MAX);
}

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

static bool wait_attention(psc_worker_t *worker)
{
    return atomic_load_explicit(&worker->n_completions, memory_order_relaxed) ||
           atomic_load_explicit(&worker->n_messages, memory_order_relaxed);
}

/* PSC_OK when there is a reason to return, PSC_INPROGRESS to go on. */
static psc_status_t wait_look(psc_worker_t *worker, wait_goal_t *goal,
                              psc_status_t *result_p)
{
    if (wait_reached(goal))
        *result_p = PSC_OK;
    else if (wait_attention(worker))
        *result_p = PSC_INPROGRESS;
    else if (atomic_load(&worker->wait.wakes) != goal->wakes)
        *result_p = PSC_ERR_INTERRUPTED;
    else
        return PSC_INPROGRESS;
    return PSC_OK;
}

static unsigned wait_pass(psc_worker_t *worker, uint32_t ifaces)
{
    unsigned n;

    psc_lock_acquire(&worker->lock);
    n = psc_worker_pass(worker, ifaces);
    psc_worker_leave(worker);
    return n;
}

/* Poll until spinning does not pay any more. */
static psc_status_t wait_spin(psc_worker_t *worker, wait_goal_t *goal,
                              psc_status_t *result_p)
{
    psc_spin_t spin;

    psc_spin_begin(worker, &spin, goal->deadline);
    do {
        do {
            if (wait_look(worker, goal, result_p) == PSC_OK)
                return PSC_OK;
        } while (wait_pass(worker, PSC_PASS_DUE) > 0);
    } while (psc_spin_on(worker, &spin));
    return PSC_INPROGRESS;
}

static int wait_milliseconds(int64_t deadline)
{
    int64_t left = deadline == INT64_MAX ? WAIT_SLICE_NS
                                         : deadline - psc_clock_now();

    if (left <= 0)
        return 0;
    if (left > WAIT_SLICE_NS)
        left = WAIT_SLICE_NS;
    return (int)((left + 999999) / 1000000);
}

/* An interface that cannot be armed has something to do, also one that has no
 * lanes. */
static psc_status_t wait_arm(psc_worker_t *worker)
{
    psc_status_t status;

    psc_lock_acquire(&worker->lock);
    status = psc_worker_arm_locked(worker);
    if (status != PSC_OK)
        psc_worker_pass(worker, PSC_PASS_ALL);
    psc_worker_leave(worker);
    return status;
}

/* Sleep until a descriptor is ready, and poll those whose it was. wake_fd is
 * edge-triggered: nobody reads it. */
static int wait_doze(psc_worker_t *worker, int64_t deadline)
{
    struct epoll_event events[PSC_IFACES_MAX + 1];
    uint32_t ifaces = 0;
    int n = epoll_wait(worker->sleep_fd, events, PSC_IFACES_MAX + 1,
                       wait_milliseconds(deadline));

    atomic_store(&worker->wait.sleeping, 0); /* nobody has to wake us now */
    for (int i = 0; i < n; i++)
        ifaces |= events[i].data.u32;
    if (ifaces)
        wait_pass(worker, ifaces);
    return n;
}

static psc_status_t wait_sleep(psc_worker_t *worker, wait_goal_t *goal,
                               psc_status_t *result_p)
{
    psc_status_t status = PSC_INPROGRESS;

    atomic_store(&worker->wait.sleeping, 1);
    if (wait_arm(worker) == PSC_OK &&
        wait_look(worker, goal, result_p) == PSC_INPROGRESS &&
        wait_doze(worker, goal->deadline) <= 0) {
        *result_p = PSC_ERR_INTERRUPTED;
        status = PSC_OK;
    }
    atomic_store(&worker->wait.sleeping, 0);
    return status;
}

/* The poller's part: until there is a reason to return. */
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

/* Another thread polls: sleep until the baton moves. */
static psc_status_t wait_follow(psc_worker_t *worker, wait_goal_t *goal,
                                uint32_t baton)
{
    int ms = wait_milliseconds(goal->deadline);
    struct timespec slice = {ms / 1000, ms % 1000 * 1000000L};

    if (ms == 0)
        return PSC_ERR_TIMEOUT;
    if (atomic_load(&worker->wait.polling) &&
        !psc_futex_wait(&worker->wait.baton, baton, &slice))
        return PSC_ERR_INTERRUPTED;
    return PSC_INPROGRESS;
}

/* The poller's role, from one thread that waits to the next. */
static bool wait_take_role(psc_worker_t *worker)
{
    if (atomic_exchange(&worker->wait.polling, 1) != 0)
        return false;
    psc_thread_nudge(worker);
    return true;
}

static void wait_pass_baton(psc_worker_t *worker)
{
    atomic_store(&worker->wait.polling, 0);
    psc_thread_relieve(worker);
    if (atomic_load(&worker->wait.waiters) == 0)
        return;
    atomic_fetch_add(&worker->wait.baton, 1);
    psc_futex_wake(&worker->wait.baton, INT32_MAX);
}

psc_status_t psc_wait_requests(psc_worker_t *worker,
                               psc_request_t *const *requests, size_t n,
                               psc_wait_mode_t mode, int64_t timeout_ns)
{
    wait_goal_t goal = {.requests = requests, .n = n, .mode = mode,
                        .wakes = atomic_load(&worker->wait.wakes),
                        .deadline = psc_clock_deadline(timeout_ns)};
    psc_status_t status = PSC_INPROGRESS, result = PSC_OK;

    if (atomic_load(&worker->forked))
        return PSC_ERR_FORKED;
    if (wait_look(worker, &goal, &result) == PSC_OK)
        return result;
    if (wait_take_role(worker)) {
        result = wait_poll(worker, &goal);
        wait_pass_baton(worker);
        return result;
    }
    atomic_fetch_add(&worker->wait.waiters, 1);
    while (status == PSC_INPROGRESS) {
        uint32_t baton = atomic_load(&worker->wait.baton);

        if (wait_look(worker, &goal, &result) == PSC_OK)
            break;
        if (wait_take_role(worker)) {
            atomic_fetch_sub(&worker->wait.waiters, 1);
            result = wait_poll(worker, &goal);
            wait_pass_baton(worker);
            return result;
        }
        status = wait_follow(worker, &goal, baton);
        result = status;
    }
    atomic_fetch_sub(&worker->wait.waiters, 1);
    return result;
}

bool psc_wait_linger(psc_worker_t *worker, psc_request_t *request, int64_t ns)
{
    wait_goal_t goal = {.requests = &request, .n = 1, .mode = PSC_WAIT_ALL,
                        .wakes = atomic_load(&worker->wait.wakes),
                        .deadline = psc_clock_deadline(ns)};
    psc_status_t ignored;

    if (atomic_load(&worker->forked) || worker->config.spin_ns == 0)
        return false;
    if (wait_take_role(worker)) {
        wait_spin(worker, &goal, &ignored);
        wait_pass_baton(worker);
    }
    return psc_request_state(request) != PSC_REQUEST_ACTIVE;
}
