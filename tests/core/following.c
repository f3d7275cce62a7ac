/* Threads that wait while another thread polls: each is woken by its own
 * request, and one by the free role of the poller. */
#include <pthread.h>
#include <sched.h>

#include "harness.h"
#include "pscompy/core/finish.h"
#include "pscompy/core/progress/sleep.h"
#include "pscompy/core/worker.h"

enum { MOST = 4 };

typedef struct waiter {
    pthread_t thread;
    psc_worker_t *worker;
    psc_request_t *requests[2];
    size_t n;
} waiter_t;

static void *waiter_run(void *arg)
{
    waiter_t *me = arg;
    psc_status_t status;

    do {
        status = api->wait(me->worker, me->requests, me->n, PSC_WAIT_ANY,
                           PATIENCE_NS);
    } while (status == PSC_ERR_INTERRUPTED || status == PSC_INPROGRESS);
    check(status == PSC_OK);
    return NULL;
}

static unsigned count_followers(const psc_worker_t *worker)
{
    const psc_link_t *link = worker->wait.followers.next;
    unsigned n = 0;

    for (; link != &worker->wait.followers; link = link->next)
        n++;
    return n;
}

static unsigned followers(psc_worker_t *worker)
{
    unsigned n;

    psc_lock_acquire(&worker->lock);
    n = count_followers(worker);
    psc_lock_release(&worker->lock);
    return n;
}

/* Complete a request as soon as its thread has armed; only that thread is
 * woken. Each thread's time slice ends now and then, and it arms again. */
static void complete_alone(psc_worker_t *worker, psc_request_t *request)
{
    psc_req_t *req = psc_container_of(request, psc_req_t, head);
    int64_t end = psc_clock_now() + PATIENCE_NS;
    unsigned n;

    psc_lock_acquire(&worker->lock);
    while (!req->follower) {
        psc_worker_leave(worker);
        check(psc_clock_now() < end);
        sched_yield();
        psc_lock_acquire(&worker->lock);
    }
    n = count_followers(worker);
    psc_req_finish(req, PSC_OK);
    check(count_followers(worker) == n - 1);
    psc_worker_leave(worker);
}

static void await_followers(psc_worker_t *worker, unsigned n)
{
    int64_t end = psc_clock_now() + PATIENCE_NS;

    while (followers(worker) != n) {
        check(psc_clock_now() < end);
        sched_yield();
    }
}

static psc_request_t *event(psc_worker_t *worker)
{
    psc_request_t *request;

    check(api->event_create(worker, 0, NULL, &request) == PSC_OK);
    return request;
}

/* Start a thread that waits for any of these requests, and wait until it polls
 * or follows. `second` may be NULL. */
static void waiter_start(waiter_t *waiter, psc_worker_t *worker,
                         psc_request_t *first, psc_request_t *second,
                         unsigned followed)
{
    int64_t end = psc_clock_now() + PATIENCE_NS;

    *waiter = (waiter_t){
        .worker = worker, .requests = {first, second}, .n = second ? 2 : 1};
    check(pthread_create(&waiter->thread, NULL, waiter_run, waiter) == 0);
    while (!atomic_load(&worker->wait.polling))
        check(psc_clock_now() < end);
    await_followers(worker, followed);
}

static void end(waiter_t *waiter, psc_request_t *request)
{
    if (!done(request))
        api->event_complete(request, PSC_OK);
    check(pthread_join(waiter->thread, NULL) == 0);
}

static void close_without_late(pair_t *pair)
{
    check(count(pair->a.worker, PSC_COUNTER_late_wakeups) == 0);
    pair_close(pair);
}

CASE(only_its_thread_is_woken)
{
    waiter_t waiters[MOST];
    psc_request_t *events[MOST];
    psc_worker_t *worker;
    pair_t pair;

    pair_open(&pair);
    worker = pair.a.worker;
    for (unsigned i = 0; i < MOST; i++) {
        events[i] = event(worker);
        waiter_start(&waiters[i], worker, events[i], NULL, i);
    }
    for (unsigned i = MOST - 1; i > 0; i--) { /* the first polls */
        complete_alone(worker, events[i]);
        end(&waiters[i], events[i]);
    }
    end(&waiters[0], events[0]);
    for (unsigned i = 0; i < MOST; i++)
        api->request_free(events[i]);
    close_without_late(&pair);
}

CASE(two_wait_for_one)
{
    waiter_t poller, one, two;
    psc_request_t *other, *both;
    pair_t pair;

    pair_open(&pair);
    other = event(pair.a.worker);
    both = event(pair.a.worker);
    waiter_start(&poller, pair.a.worker, other, NULL, 0);
    waiter_start(&one, pair.a.worker, both, NULL, 1);
    waiter_start(&two, pair.a.worker, both, NULL, 2);
    api->event_complete(both, PSC_OK);
    check(followers(pair.a.worker) == 0);
    end(&one, both);
    end(&two, both);
    end(&poller, other);
    api->request_free(other);
    api->request_free(both);
    close_without_late(&pair);
}

CASE(any_of_several)
{
    waiter_t poller, one, two;
    psc_request_t *other, *first, *second;
    pair_t pair;

    pair_open(&pair);
    other = event(pair.a.worker);
    first = event(pair.a.worker);
    second = event(pair.a.worker);
    waiter_start(&poller, pair.a.worker, other, NULL, 0);
    waiter_start(&one, pair.a.worker, first, second, 1);
    end(&one, second);
    check(!psc_container_of(first, psc_req_t, head)->follower);
    waiter_start(&two, pair.a.worker, first, NULL, 1);
    end(&two, first);
    end(&poller, other);
    api->request_free(other);
    api->request_free(first);
    api->request_free(second);
    close_without_late(&pair);
}

/* A thread that watches its request while another thread polls has not armed,
 * so nothing need wake it. On a crowded processor a wait may give up watching:
 * then the next one is tried. */
CASE(a_follower_watches_first)
{
    int64_t limit = psc_clock_now() + PATIENCE_NS;
    psc_worker_t *worker;
    psc_request_t *never;
    bool armed = true;
    pair_t pair;

    options.spin_ns = PATIENCE_NS;
    pair_open(&pair);
    worker = pair.a.worker;
    never = event(worker);
    atomic_store(&worker->wait.polling, 1); /* as if another thread polled */
    while (armed) {
        check(psc_clock_now() < limit);
        check(api->wait(worker, &never, 1, PSC_WAIT_ALL, 100000) != PSC_OK);
        psc_lock_acquire(&worker->lock);
        armed = atomic_load(&worker->wait.wanted) & PSC_WAKE_FREE;
        psc_wake(worker, PSC_WAKE_FREE); /* clears it: no follower is left */
        psc_worker_leave(worker);
    }
    atomic_store(&worker->wait.polling, 0);
    api->event_complete(never, PSC_OK);
    api->request_free(never);
    close_without_late(&pair);
}

/* The poller returns: of the followers one polls then, and the others sleep
 * on. */
CASE(role_is_passed_on)
{
    waiter_t waiters[MOST];
    psc_request_t *events[MOST];
    pair_t pair;

    pair_open(&pair);
    for (unsigned i = 0; i < MOST; i++) {
        events[i] = event(pair.a.worker);
        waiter_start(&waiters[i], pair.a.worker, events[i], NULL, i);
    }
    for (unsigned i = 0; i < MOST; i++) { /* the earliest follows the poller */
        unsigned left = MOST - 1 - i;

        end(&waiters[i], events[i]);
        check(!left || followers(pair.a.worker) < left); /* one is woken */
        await_followers(pair.a.worker, left ? left - 1 : 0);
        api->request_free(events[i]);
    }
    close_without_late(&pair);
}
