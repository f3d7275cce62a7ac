/* Threads with workers of their own, which share nothing but the process: their
 * messages do not mix, and workers are opened and closed beside them. */
#include <pthread.h>
#include <sched.h>

#include "harness.h"
#include "pscompy/core/worker.h"

enum { THREADS = 4, SHORT = 40, LONG = 400, ROOM = 70000 };

typedef struct apart {
    pair_t pair;
    pthread_t thread;
    unsigned seed;
    int messages;
} apart_t;

static void *apart_main(void *arg)
{
    static const size_t lengths[] = {8, 3000, ROOM};
    apart_t *me = arg;
    char *out = malloc(ROOM), *in = malloc(ROOM);

    for (int i = 0; i < me->messages; i++) {
        size_t len = lengths[i % 3];
        psc_request_t *recv, *send;
        psc_result_t result;

        fill(out, len, me->seed + (unsigned)i);
        send = post_send(&me->pair.a, out, len, 1);
        recv = post_recv(&me->pair.b, me->pair.b.conn, in, ROOM, PSC_ANY_TAG,
                         &result);
        if (recv)
            result = finish(&me->pair, recv);
        check(result.status == PSC_OK && result.nbytes == len);
        check(filled(in, len, me->seed + (unsigned)i));
        sent(&me->pair, send);
    }
    free(out);
    free(in);
    return NULL;
}

static void apart_start(apart_t *it, unsigned seed, int messages)
{
    it->seed = seed;
    it->messages = messages;
    pair_open(&it->pair);
    check(!pthread_create(&it->thread, NULL, apart_main, it));
}

static void apart_end(apart_t *it)
{
    check(!pthread_join(it->thread, NULL));
    check(count(it->pair.a.worker, PSC_COUNTER_sent_messages) ==
          (uint64_t)it->messages);
    pair_close(&it->pair);
}

/* The first thread ends early; its workers are closed, and others opened in
 * their place, while the other threads go on. */
CASE(a_worker_for_each_thread)
{
    apart_t all[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        apart_start(&all[i], 1000 * i, i ? LONG : SHORT);
    apart_end(&all[0]);
    check(count(all[1].pair.b.worker, PSC_COUNTER_received_messages) <= LONG);
    apart_start(&all[0], 7, SHORT);
    for (unsigned i = 0; i < THREADS; i++)
        apart_end(&all[i]);
}

/* ---- waits for the lock ---- */

static void *lock_taken(void *arg)
{
    psc_worker_t *worker = arg;

    check(psc_worker_enter(worker, 0) == PSC_OK);
    psc_worker_leave(worker);
    return NULL;
}

CASE(a_wait_for_the_lock_is_counted)
{
    enum { HELD_NS = 2000000 };
    pair_t pair;
    psc_worker_t *worker;
    pthread_t thread;
    uint64_t waits, longest;
    int64_t begun;

    pair_open(&pair);
    worker = pair.a.worker;
    waits = count(worker, PSC_COUNTER_lock_waits);
    check(psc_worker_enter(worker, 0) == PSC_OK);
    check(!pthread_create(&thread, NULL, lock_taken, worker));
    while (!psc_lock_wanted(&worker->lock))
        sched_yield();
    begun = psc_clock_now();
    while (psc_clock_now() < begun + HELD_NS)
        sched_yield();
    psc_worker_leave(worker);
    check(!pthread_join(thread, NULL));
    longest = count(worker, PSC_COUNTER_lock_longest_ns);
    check(count(worker, PSC_COUNTER_lock_waits) == waits + 1);
    check(longest >= HELD_NS);
    lock_taken(worker);
    check(count(worker, PSC_COUNTER_lock_waits) == waits + 1);
    check(count(worker, PSC_COUNTER_lock_longest_ns) == longest);
    pair_close(&pair);
}
