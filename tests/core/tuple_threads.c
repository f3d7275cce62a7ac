/* Receives that the sender sees and takes, with sender and receiver in threads
 * of their own. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tuples.h"

enum { ROUNDS = 400, WINDOW = 4, TAGS = 3 };

typedef struct storm {
    pair_t pair;
    size_t lens[ROUNDS];
    int32_t tags[ROUNDS];
    bool any[ROUNDS];
} storm_t;

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static void wait_for(psc_worker_t *worker, psc_request_t *request)
{
    psc_request_t *const one[] = {request};

    if (!request)
        return;
    while (!done(request))
        api->wait(worker, one, 1, PSC_WAIT_ALL, PATIENCE_NS);
}

static void *storm_sender(void *arg)
{
    storm_t *storm = arg;
    side_t *side = &storm->pair.a;

    for (int i = 0; i < ROUNDS; i++) {
        char *out = malloc(storm->lens[i]);
        psc_request_t *send;

        fill(out, storm->lens[i], (unsigned)i);
        send = post_send(side, out, storm->lens[i], storm->tags[i]);
        wait_for(side->worker, send);
        if (send) {
            check(send->result.status == PSC_OK);
            api->request_free(send);
        }
        free(out);
    }
    return NULL;
}

/* The receives of round i .. i + WINDOW are posted; some are cancelled and
 * posted again, behind them. All take the messages in order, because every
 * receive is for any tag or all messages of a window have one tag. */
static void *storm_receiver(void *arg)
{
    storm_t *storm = arg;
    side_t *side = &storm->pair.b;
    char *in = malloc((size_t)WINDOW * 2 * LEN);
    psc_request_t *recvs[WINDOW];
    psc_result_t results[WINDOW];
    uint32_t random = 7;

    for (int first = 0; first < ROUNDS; first += WINDOW) {
        for (int i = 0; i < WINDOW; i++) {
            int32_t tag = storm->any[first] ? PSC_ANY_TAG : storm->tags[first];

            recvs[i] = post_recv(side, side->conn, in + i * LEN, LEN, tag,
                                 &results[i]);
            if (next_random(&random) % 4 == 0)
                api->progress(side->worker, 0);
            if (recvs[i] && i == WINDOW - 1 && next_random(&random) % 2 &&
                api->cancel(recvs[i]) == PSC_OK) {
                wait_for(side->worker, recvs[i]);
                api->request_free(recvs[i]);
                recvs[i] = post_recv(side, side->conn, in + i * LEN, LEN, tag,
                                     &results[i]);
            }
        }
        for (int i = 0; i < WINDOW; i++) {
            wait_for(side->worker, recvs[i]);
            if (recvs[i]) {
                results[i] = recvs[i]->result;
                api->request_free(recvs[i]);
            }
            expect_ok(results[i], in + i * LEN, storm->lens[first + i],
                      (unsigned)(first + i));
        }
    }
    free(in);
    return NULL;
}

CASE(tuple_threads)
{
    static storm_t storm;
    pthread_t sender;
    uint32_t random = 3;

    open_tuples(&storm.pair);
    if (storm.pair.a.worker == storm.pair.b.worker) { /* loop: one worker */
        pair_close(&storm.pair);
        return;
    }
    for (int i = 0; i < ROUNDS; i++) {
        int first = i - i % WINDOW;

        storm.lens[i] = next_random(&random) % 3 == 0
                            ? 1 + next_random(&random) % 500
                            : MIN + next_random(&random) % (LEN - MIN);
        storm.tags[i] = i == first ? (int32_t)(next_random(&random) % TAGS)
                                   : storm.tags[first];
        storm.any[i] = next_random(&random) % 3 == 0;
    }
    check(pthread_create(&sender, NULL, storm_sender, &storm) == 0);
    storm_receiver(&storm);
    check(pthread_join(sender, NULL) == 0);
    if (advertises(&storm.pair))
        check(count(storm.pair.b.worker, PSC_COUNTER_tuple_taken) > 0);
    pair_close(&storm.pair);
}

/* ---- one after the other ---- */

/* In each round one side copies the whole message, before the other looks. The
 * threads wait for each other without ordering anything but the message. */
typedef struct turns {
    pair_t pair;
    _Atomic int posted, sent, received;
} turns_t;

enum { TURNS = 20 };

static void await(_Atomic int *turn, int value)
{
    int64_t end = psc_clock_now() + PATIENCE_NS;

    while (atomic_load_explicit(turn, memory_order_relaxed) < value) {
        check(psc_clock_now() < end);
        sched_yield();
    }
}

static void announce(_Atomic int *turn, int value)
{
    atomic_store_explicit(turn, value, memory_order_relaxed);
}

static void *turns_sender(void *arg)
{
    turns_t *turns = arg;
    side_t *side = &turns->pair.a;

    for (int i = 1; i <= TURNS; i++) {
        char *out = malloc(LEN);
        psc_request_t *send;

        fill(out, LEN, (unsigned)i);
        await(&turns->posted, i);
        send = post_send(side, out, LEN, 5);
        if (i % 2) {
            announce(&turns->sent, i);
            await(&turns->received, i);
        }
        wait_for(side->worker, send);
        if (send)
            api->request_free(send);
        announce(&turns->sent, i);
        memset(out, 0, LEN); /* it is the program's again */
        free(out);
    }
    return NULL;
}

static void *turns_receiver(void *arg)
{
    turns_t *turns = arg;
    side_t *side = &turns->pair.b;
    char *in = malloc(LEN);

    for (int i = 1; i <= TURNS; i++) {
        psc_request_t *recv = expect(&turns->pair, in, LEN, 5);

        announce(&turns->posted, i);
        await(&turns->sent, i);
        wait_for(side->worker, recv);
        expect_ok(recv->result, in, LEN, (unsigned)i);
        api->request_free(recv);
        announce(&turns->received, i);
    }
    free(in);
    return NULL;
}

CASE(tuple_turns)
{
    static turns_t turns;
    pthread_t sender;

    open_tuples(&turns.pair);
    if (advertises(&turns.pair)) {
        check(pthread_create(&sender, NULL, turns_sender, &turns) == 0);
        turns_receiver(&turns);
        check(pthread_join(sender, NULL) == 0);
        check(count(turns.pair.b.worker, PSC_COUNTER_tuple_taken) == TURNS);
    }
    pair_close(&turns.pair);
}
