/* Threads that wait while another thread polls: each is woken by its own
 * request, and one by the free role of the poller. */
#include <pthread.h>
#include <sched.h>

#include "harness.h"
#include "pscompy/core/finish.h"
#include "pscompy/core/progress/progress.h"
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

/* Returns whether reports mark the request as waited for. */
static bool marked(psc_worker_t *worker, psc_request_t *request)
{
    psc_item_t items[3];
    uint32_t n = psc_worker_items(worker, items, 3);

    for (uint32_t i = 0; i < n; i++) {
        if (items[i].request == (uintptr_t)request)
            return items[i].awaited;
    }
    return false;
}

static void await_mark(psc_worker_t *worker, psc_request_t *request)
{
    int64_t end = psc_clock_now() + PATIENCE_NS;

    while (!marked(worker, request)) {
        check(psc_clock_now() < end);
        sched_yield();
    }
}

CASE(sleeping_waits_are_marked)
{
    psc_request_t *polled, *followed, *nobodys;
    waiter_t poller, one, two;
    pair_t pair;

    pair_open(&pair);
    polled = event(pair.a.worker);
    followed = event(pair.a.worker);
    nobodys = event(pair.a.worker);
    waiter_start(&poller, pair.a.worker, polled, NULL, 0);
    waiter_start(&one, pair.a.worker, followed, NULL, 1);
    waiter_start(&two, pair.a.worker, polled, followed, 2);
    await_mark(pair.a.worker, polled);
    await_mark(pair.a.worker, followed);
    check(!marked(pair.a.worker, nobodys));
    end(&two, followed); /* its wait for `polled` ends, too */
    end(&one, followed);
    check(!psc_request_awaited(followed));
    await_mark(pair.a.worker, polled);
    end(&poller, polled);
    check(!psc_request_awaited(polled));
    api->request_free(polled);
    api->request_free(followed);
    api->request_free(nobodys);
    close_without_late(&pair);
}

CASE(a_wait_that_need_not_sleep_is_not_marked)
{
    psc_request_t *request;
    pair_t pair;

    pair_open(&pair);
    request = event(pair.a.worker);
    check(api->wait(pair.a.worker, &request, 1, PSC_WAIT_ALL, 0) ==
          PSC_ERR_TIMEOUT);
    check(!psc_request_awaited(request));
    api->event_complete(request, PSC_OK);
    check(api->wait(pair.a.worker, &request, 1, PSC_WAIT_ALL, PSC_FOREVER) ==
          PSC_OK);
    check(!psc_request_awaited(request));
    api->request_free(request);
    pair_close(&pair);
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

/* ---- threads that do not take what is queued (PSC_WAIT_OWN) ---- */

typedef struct taker {
    pthread_t thread;
    psc_worker_t *worker;
    psc_request_t *never;
    atomic_bool queued; /* a completion was queued for this thread to take */
    atomic_uint taken, late;
} taker_t;

/* A thread that takes what is queued, as Python's threads do, and waits for a
 * request that completes last. */
static void *taker_run(void *arg)
{
    taker_t *me = arg;
    psc_request_t *request;
    psc_status_t status;
    bool queued;

    do {
        queued = atomic_load(&me->queued);
        status =
            api->wait(me->worker, &me->never, 1, PSC_WAIT_ALL, PATIENCE_NS);
        if (status == PSC_ERR_INTERRUPTED && queued)
            atomic_fetch_add(&me->late, 1);
        while ((request = api->completion_poll(me->worker))) {
            atomic_store(&me->queued, false);
            api->request_free(request);
            atomic_fetch_add(&me->taken, 1);
        }
    } while (status == PSC_ERR_INTERRUPTED || status == PSC_INPROGRESS);
    check(status == PSC_OK);
    return NULL;
}

static void *own_run(void *arg)
{
    waiter_t *me = arg;
    psc_status_t status;

    do {
        status = api->wait(me->worker, me->requests, me->n,
                           PSC_WAIT_ANY | PSC_WAIT_OWN, PATIENCE_NS);
    } while (status == PSC_ERR_INTERRUPTED);
    check(status == PSC_OK);
    return NULL;
}

static void own_start(waiter_t *waiter, psc_worker_t *worker,
                      psc_request_t *request)
{
    *waiter = (waiter_t){.worker = worker, .requests = {request}, .n = 1};
    check(pthread_create(&waiter->thread, NULL, own_run, waiter) == 0);
    while (atomic_load(&worker->wait.polling) != PSC_POLLING_OWN)
        sched_yield();
}

/* Queue a completion that completion_poll returns. */
static void queue_one(psc_worker_t *worker)
{
    psc_request_t *request;

    check(api->event_create(worker, PSC_FLAG_NOTIFY, NULL, &request) == PSC_OK);
    api->event_complete(request, PSC_OK);
}

static bool poller_sleeps(psc_worker_t *worker)
{
    bool sleeps;

    psc_lock_acquire(&worker->lock);
    sleeps = worker->wait.poller.wants != 0;
    psc_worker_leave(worker);
    return sleeps;
}

CASE(a_completion_of_others_ends_no_wait_of_its_own)
{
    int64_t end = psc_clock_now() + PATIENCE_NS;
    psc_request_t *own, *queued;
    psc_worker_t *worker;
    waiter_t waiter;
    pair_t pair;

    pair_open(&pair);
    worker = pair.a.worker;
    own = event(worker);
    queue_one(worker);
    check(api->wait(worker, &own, 1, PSC_WAIT_ALL, PATIENCE_NS) ==
          PSC_INPROGRESS);
    check(api->wait(worker, &own, 1, PSC_WAIT_ALL | PSC_WAIT_OWN, 1000) ==
          PSC_ERR_TIMEOUT);
    own_start(&waiter, worker, own);
    while (!poller_sleeps(worker)) { /* it does not turn in a circle */
        check(psc_clock_now() < end);
        sched_yield();
    }
    api->event_complete(own, PSC_OK);
    check(pthread_join(waiter.thread, NULL) == 0);
    queued = api->completion_poll(worker);
    check(queued);
    api->request_free(queued);
    api->request_free(own);
    close_without_late(&pair);
}

CASE(who_takes_completions_is_woken_by_who_does_not)
{
    enum { ROUNDS = 10 };
    int64_t end = psc_clock_now() + PATIENCE_NS;
    psc_worker_t *worker;
    waiter_t waiter;
    taker_t taker;
    pair_t pair;

    pair_open(&pair);
    worker = pair.a.worker;
    own_start(&waiter, worker, event(worker));
    taker = (taker_t){.worker = worker, .never = event(worker)};
    check(pthread_create(&taker.thread, NULL, taker_run, &taker) == 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        await_followers(worker, 1);
        atomic_store(&taker.queued, true);
        queue_one(worker);
        while (atomic_load(&taker.taken) == i) {
            check(psc_clock_now() < end);
            sched_yield();
        }
    }
    /* a thread whose time slice just ends may be late */
    check(atomic_load(&taker.late) < ROUNDS / 2);
    api->event_complete(waiter.requests[0], PSC_OK);
    check(pthread_join(waiter.thread, NULL) == 0);
    api->event_complete(taker.never, PSC_OK);
    check(pthread_join(taker.thread, NULL) == 0);
    api->request_free(waiter.requests[0]);
    api->request_free(taker.never);
    close_without_late(&pair);
}
