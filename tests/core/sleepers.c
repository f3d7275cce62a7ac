/* Sleepers are woken regardless of which thread polls: sleepers outside the
 * core, beside threads that wait, probe and poll. And many waits by many
 * threads, none of which may end by its time slice alone (PSCOMPY_TEST_WAITS:
 * number of waits). */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "harness.h"

static bool readable(int fd, int ms)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};

    return poll(&ready, 1, ms) == 1;
}

static void arm(psc_sleeper_t *sleeper)
{
    int64_t end = psc_clock_now() + PATIENCE_NS;

    while (api->sleeper_arm(sleeper) != PSC_OK) {
        check(psc_clock_now() < end);
        api->sleeper_progress(sleeper);
    }
}

/* ---- sends ---- */

static uint64_t count_eager(psc_worker_t *worker)
{
    return count(worker, PSC_COUNTER_eager_bcopy) +
           count(worker, PSC_COUNTER_eager_zcopy);
}

/* A message that leaves within the call is not notified, and the threads that
 * sleep until something arrives go on sleeping. A transport whose messages are
 * shorter sends it by rendezvous. */
CASE(a_send_that_leaves_wakes_nobody)
{
    static char out[20000] = "no copy", in[20000];
    psc_iov_t iov = {out, sizeof out};
    psc_send_args_t args = {.context = CONTEXT,
                            .tag = 1,
                            .iov = &iov,
                            .n_iov = 1,
                            .flags = PSC_FLAG_NOTIFY};
    psc_request_t *send = NULL, *recv;
    psc_sleeper_t *sleeper;
    psc_result_t result;
    pair_t pair;
    bool left;

    options.eager_max = sizeof out;
    pair_open(&pair);
    settle(&pair);
    check(api->sleeper_create(pair.a.worker, &sleeper) == PSC_OK);
    arm(sleeper);
    left = api->send(pair.a.conn, &args, &send) == PSC_OK;
    check(left == (count_eager(pair.a.worker) > 0));
    if (left) {
        check(!send && !api->completion_poll(pair.a.worker));
        check(pair.a.worker == pair.b.worker ||
              !readable(api->sleeper_descriptor(sleeper), 0));
    }
    recv = post_recv(&pair.b, pair.b.conn, in, sizeof in, 1, &result);
    if (recv)
        result = finish(&pair, recv);
    sent(&pair, send);
    check(result.status == PSC_OK && strcmp(in, "no copy") == 0);
    api->sleeper_release(pair.a.worker, sleeper);
    pair_close(&pair);
}

/* ---- other threads that poll ---- */

static void wait_for(psc_worker_t *worker, int64_t ns)
{
    psc_request_t *never;
    psc_status_t status;

    check(api->event_create(worker, 0, NULL, &never) == PSC_OK);
    status = api->wait(worker, &never, 1, PSC_WAIT_ALL, ns);
    check(status == PSC_ERR_TIMEOUT || status == PSC_ERR_INTERRUPTED);
    api->event_complete(never, PSC_ERR_CANCELLED);
    api->request_free(never);
}

static void poll_waiting(psc_worker_t *worker)
{
    wait_for(worker, 30000); /* shorter than the spin time */
}

static void poll_sleeping(psc_worker_t *worker)
{
    wait_for(worker, 3000000);
}

static void poll_probing(psc_worker_t *worker)
{
    psc_recv_args_t args = {.context = CONTEXT, .tag = 5};
    psc_result_t result;

    api->iprobe(worker, &args, &result);
}

static void poll_once(psc_worker_t *worker)
{
    api->progress(worker, 0);
}

static void poll_spinning(psc_worker_t *worker)
{
    psc_request_t *never;

    check(api->event_create(worker, 0, NULL, &never) == PSC_OK);
    check(!api->spin(worker, never, 100));
    check(!api->linger(worker, never, 20000));
    api->request_free(never);
}

static void poll_receiving(psc_worker_t *worker)
{
    psc_recv_args_t args = {.context = CONTEXT, .tag = 5, .polls = 10};
    psc_request_t *request;
    psc_result_t result;

    check(api->recv(worker, &args, &result, &request) == PSC_INPROGRESS);
    check(api->cancel(request) == PSC_OK);
    api->request_free(request);
}

static void sleep_beside(pair_t *pair, psc_sleeper_t *sleeper,
                         void (*meddle)(psc_worker_t *))
{
    psc_result_t result;
    char in;
    psc_request_t *recv = post_recv(&pair->b, pair->b.conn, &in, 1, 1, &result);
    psc_request_t *send;

    arm(sleeper);
    meddle(pair->b.worker);
    send = post_send(&pair->a, "x", 1, 1);
    if (pair->a.worker != pair->b.worker)
        api->progress(pair->a.worker, 0);
    check(readable(api->sleeper_descriptor(sleeper), PATIENCE_NS / 1000000));
    check(finish(pair, recv).status == PSC_OK);
    sent(pair, send);
}

CASE(polling_wakes_sleepers)
{
    static void (*const meddlers[])(psc_worker_t *) = {
        poll_waiting, poll_sleeping,  poll_probing,
        poll_once,    poll_receiving, poll_spinning};
    psc_sleeper_t *sleeper;
    pair_t pair;

    pair_open(&pair);
    settle(&pair);
    check(api->sleeper_create(pair.b.worker, &sleeper) == PSC_OK);
    for (size_t i = 0; i < sizeof meddlers / sizeof *meddlers; i++)
        sleep_beside(&pair, sleeper, meddlers[i]);
    api->sleeper_release(pair.b.worker, sleeper);
    pair_close(&pair);
}

/* ---- several sleepers ---- */

/* Each sleeper is woken by messages independently of the other; while nothing
 * arrives, their passes do not wake each other. */
CASE(sleepers_are_apart)
{
    psc_sleeper_t *one, *two;
    psc_result_t result;
    psc_request_t *recv, *send;
    pair_t pair;
    char in;

    pair_open(&pair);
    settle(&pair);
    check(api->sleeper_create(pair.b.worker, &one) == PSC_OK);
    check(api->sleeper_create(pair.b.worker, &two) == PSC_OK);
    recv = post_recv(&pair.b, pair.b.conn, &in, 1, 1, &result);
    arm(one);
    arm(two);
    send = post_send(&pair.a, "x", 1, 1);
    until(&pair, done(recv));
    arm(one);
    check(readable(api->sleeper_descriptor(two), 0));
    arm(two);
    settle(&pair); /* rings each at most once */
    arm(one);
    arm(two);
    for (int i = 0; i < 100; i++) {
        psc_sleeper_t *awake = i % 2 ? one : two;

        api->sleeper_progress(awake);
        arm(awake);
        check(!readable(api->sleeper_descriptor(i % 2 ? two : one), 0));
    }
    api->request_free(recv);
    sent(&pair, send);
    api->sleeper_release(pair.b.worker, one);
    api->sleeper_release(pair.b.worker, two);
    pair_close(&pair);
}

/* A thread checks its requests, then the request completes, then the thread
 * arms. */
CASE(news_before_arming)
{
    psc_request_t *event;
    pair_t pair;

    pair_open(&pair);
    settle(&pair);
    check(api->event_create(pair.b.worker, 0, NULL, &event) == PSC_OK);
    for (int i = 0; i < 1000 && api->arm(pair.b.worker) != PSC_OK; i++)
        api->progress(pair.b.worker, 0);
    check(api->arm(pair.b.worker) == PSC_OK);
    api->event_complete(event, PSC_OK);
    check(readable(api->descriptor(pair.b.worker), 0));
    api->request_free(event);
    check(api->arm(pair.b.worker) == PSC_ERR_NO_RESOURCE);
    check(api->event_create(pair.b.worker, 0, NULL, &event) == PSC_OK);
    api->event_complete(event, PSC_OK);
    check(api->arm(pair.b.worker) == PSC_ERR_NO_RESOURCE);
    api->request_free(event);
    pair_close(&pair);
}

CASE(sleepers_outlive_workers)
{
    psc_sleeper_t *one, *two;
    pair_t pair;

    pair_open(&pair);
    check(api->sleeper_create(pair.a.worker, &one) == PSC_OK);
    check(api->sleeper_create(pair.a.worker, &two) == PSC_OK);
    api->sleeper_release(NULL, two);
    pair_close(&pair);
    check(readable(api->sleeper_descriptor(one), 0));
    api->sleeper_release(NULL, one);
}

/* ---- programs that only send ---- */

/* Credit arrives over the connection's own interface, which is not the first
 * one. */
CASE(starved_beside_another)
{
    enum { ROUNDS = 200, MESSAGES = 10, LENGTH = 900 };
    char out[LENGTH] = {0}, in[LENGTH];
    pair_t pair;

    options.idle_iface = true;
    pair_open(&pair);
    settle(&pair);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MESSAGES; i++) {
            psc_request_t *send = post_send(&pair.a, out, LENGTH, 1);

            if (send) /* some fabrics accept few messages at a time */
                finish(&pair, send);
        }
        for (int i = 0; i < MESSAGES; i++) {
            psc_result_t result;
            psc_request_t *recv =
                post_recv(&pair.b, pair.b.conn, in, LENGTH, 1, &result);

            while (recv && !done(recv))
                api->progress(pair.b.worker, 0);
            if (recv)
                api->request_free(recv);
        }
        api->progress(pair.b.worker, 0);
    }
    check(count(pair.a.worker, PSC_COUNTER_credits_exhausted) == 0);
    pair_close(&pair);
}

/* ---- many waits ---- */

enum {
    WAITS = 4000,
    WAITERS = 2,
    OUTSIDE = 2,
    BACKGROUND = 1, /* runners that make background progress */
    STREAMS = WAITERS + OUTSIDE + BACKGROUND
};

typedef struct runner {
    pthread_t thread;
    side_t side;
    int32_t tag;
    long rounds;
    bool first, outside, standing;
    unsigned seed;
    psc_sleeper_t *sleeper;
} runner_t;

static atomic_ulong late_outside;
static atomic_bool runners_done;

static unsigned runner_random(runner_t *me, unsigned below)
{
    me->seed = me->seed * 1103515245 + 12345;
    return (me->seed >> 16) % below;
}

/* Sleep as an event loop does. */
static void wait_outside(runner_t *me, psc_request_t *request)
{
    int fd = api->sleeper_descriptor(me->sleeper);

    while (!done(request)) {
        bool asleep = api->sleeper_arm(me->sleeper) == PSC_OK;
        bool late = asleep && !readable(fd, 500);

        if ((api->sleeper_progress(me->sleeper) > 0 || done(request)) && late)
            atomic_fetch_add(&late_outside, 1);
    }
}

static void wait_inside(runner_t *me, psc_request_t *request)
{
    while (!done(request)) {
        psc_status_t status =
            api->wait(me->side.worker, &request, 1, PSC_WAIT_ALL, PSC_FOREVER);

        check(status == PSC_OK || status == PSC_ERR_INTERRUPTED);
    }
}

/* Wait as a service does that runs call-backs while the program computes. The
 * fabric is busy for others, so only its own message shows that it is late. */
static void wait_standing(runner_t *me, psc_request_t *request)
{
    while (!done(request)) {
        psc_status_t status =
            api->sleeper_wait(me->sleeper, request, 500000000);
        bool late = status == PSC_ERR_TIMEOUT;

        check(late || status == PSC_OK || status == PSC_ERR_INTERRUPTED);
        if (!late)
            continue;
        api->sleeper_progress(me->sleeper);
        if (done(request))
            atomic_fetch_add(&late_outside, 1);
    }
}

static void runner_wait(runner_t *me, psc_request_t *request)
{
    if (!request)
        return;
    (me->standing  ? wait_standing
     : me->outside ? wait_outside
                   : wait_inside)(me, request);
    check(request->result.status == PSC_OK);
    api->request_free(request);
}

/* Two runners exchange a message back and forth; the one with `first`
 * begins. */
static void *runner_run(void *arg)
{
    runner_t *me = arg;
    psc_result_t result;
    uint64_t out, in;

    for (long i = 0; i < me->rounds; i++) {
        psc_request_t *recv =
            post_recv(&me->side, me->side.conn, &in, sizeof in,
                      me->tag + !me->first, &result);

        if (!me->first)
            runner_wait(me, recv);
        out = (uint64_t)i;
        for (unsigned n = runner_random(me, 60); n > 0; n--)
            psc_clock_pause();
        runner_wait(
            me, post_send(&me->side, &out, sizeof out, me->tag + me->first));
        if (me->first)
            runner_wait(me, recv);
        check(in == (uint64_t)i);
    }
    return NULL;
}

/* Poll now and then, in all ways, which uses up what other threads have
 * armed. */
static void *runner_meddle(void *arg)
{
    static void (*const ways[])(psc_worker_t *) = {
        poll_probing, poll_once, poll_waiting, poll_receiving, poll_spinning};
    runner_t *me = arg;

    for (unsigned i = 0; !atomic_load(&runners_done); i++) {
        ways[i % 5](me->side.worker);
        usleep(100 + runner_random(me, 2000));
    }
    return NULL;
}

/* Poll once per round, and then stop: the other threads are woken only by what
 * this pass has armed or rung. */
static atomic_long passer_round;

static void *runner_pass_by(void *arg)
{
    static void (*const ways[])(psc_worker_t *) = {
        poll_probing, poll_once, poll_waiting, poll_receiving, poll_spinning};
    runner_t *me = arg;

    for (long round = 0; !atomic_load(&runners_done);) {
        if (atomic_load(&passer_round) == round) {
            sched_yield();
            continue;
        }
        round = atomic_load(&passer_round);
        for (unsigned n = runner_random(me, 200); n > 0; n--)
            psc_clock_pause();
        ways[runner_random(me, 5)](me->side.worker);
    }
    return NULL;
}

static void runner_start(runner_t *me, void *(*run)(void *))
{
    if (me->outside || me->standing)
        check(api->sleeper_create(me->side.worker, &me->sleeper) == PSC_OK);
    check(pthread_create(&me->thread, NULL, run, me) == 0);
}

static long waits_wanted(void)
{
    const char *wanted = getenv("PSCOMPY_TEST_WAITS");

    options.spin_ns = 1; /* makes the threads sleep */
    return wanted ? atol(wanted) : WAITS;
}

static void waits_end(pair_t *pair, long waits)
{
    uint64_t late = count(pair->a.worker, PSC_COUNTER_late_wakeups) +
                    count(pair->b.worker, PSC_COUNTER_late_wakeups);

    printf("%ld waits, late wake-ups: %lu inside, %lu outside\n", waits,
           (unsigned long)late, atomic_load(&late_outside));
    /* A message that arrives just when the time slice ends looks late, too, on
     * a busy machine. Runs of many waits are for machines that do nothing
     * else. */
    check(late + atomic_load(&late_outside) <= (waits > WAITS ? 0 : 1));
    pair_close(pair);
}

static void runners_join(runner_t *runners, int n)
{
    for (int i = 0; i < n; i++) {
        check(pthread_join(runners[i].thread, NULL) == 0);
        if (runners[i].sleeper)
            api->sleeper_release(runners[i].side.worker, runners[i].sleeper);
    }
}

CASE(waits)
{
    long waits = waits_wanted();
    runner_t runners[2 * STREAMS], meddlers[2];
    pair_t pair;

    pair_open(&pair);
    for (int i = 0; i < 2 * STREAMS; i++) {
        runners[i] = (runner_t){.side = i % 2 ? pair.a : pair.b,
                                .tag = 10 + i / 2 * 2,
                                .rounds = waits / (2 * STREAMS),
                                .first = i % 2,
                                .outside = i / 2 >= WAITERS + BACKGROUND,
                                .standing = i / 2 == WAITERS,
                                .seed = (unsigned)i};
        runner_start(&runners[i], runner_run);
    }
    for (int i = 0; i < 2; i++) {
        meddlers[i] =
            (runner_t){.side = i ? pair.a : pair.b, .seed = (unsigned)i};
        runner_start(&meddlers[i], runner_meddle);
    }
    runners_join(runners, 2 * STREAMS);
    atomic_store(&runners_done, true);
    runners_join(meddlers, 2);
    waits_end(&pair, waits);
}

/* One thread sleeps, outside, in wait or standing in, while another polls once
 * and a message arrives, in any order. */
static void beside_a_passer_by(pair_t *pair, runner_t *me, unsigned i)
{
    psc_result_t result;
    psc_request_t *recv, *send;
    char in;

    recv = post_recv(&pair->b, pair->b.conn, &in, 1, 1, &result);
    atomic_fetch_add(&passer_round, 1);
    me->outside = i % 2;
    me->standing = i % 4 == 0;
    me->tag = 1;
    runner_wait(me, recv);
    send = post_send(&pair->b, &in, 1, 3);
    runner_wait(me, send);
}

static void *answer_passer_by(void *arg)
{
    runner_t *me = arg;
    char byte = 'x';

    for (long i = 0; i < me->rounds; i++) {
        psc_result_t result;
        psc_request_t *recv =
            post_recv(&me->side, me->side.conn, &byte, 1, 3, &result);

        for (unsigned n = runner_random(me, 400); n > 0; n--)
            psc_clock_pause();
        runner_wait(me, post_send(&me->side, &byte, 1, 1));
        runner_wait(me, recv);
    }
    return NULL;
}

CASE(waits_beside_a_passer_by)
{
    long waits = waits_wanted();
    runner_t others[2];
    pair_t pair;
    runner_t me;

    pair_open(&pair);
    me = (runner_t){.side = pair.b};
    check(api->sleeper_create(pair.b.worker, &me.sleeper) == PSC_OK);
    others[0] = (runner_t){.side = pair.a, .rounds = waits / 2};
    others[1] = (runner_t){.side = pair.b, .seed = 1};
    runner_start(&others[0], answer_passer_by);
    runner_start(&others[1], runner_pass_by);
    for (long i = 0; i < waits / 2; i++)
        beside_a_passer_by(&pair, &me, (unsigned)i);
    atomic_store(&runners_done, true);
    runners_join(others, 2);
    api->sleeper_release(pair.b.worker, me.sleeper);
    waits_end(&pair, waits);
}
