/* Workers with a progress thread: messages move although the program makes no
 * call, and also while other threads poll and wait. */
#include <pthread.h>
#include <unistd.h>

#include "harness.h"

#define PATIENT_NS 200000

static void pair_open_driven(pair_t *pair)
{
    pair_open(pair);
    check(psc_worker_thread_start(pair->a.worker, PATIENT_NS) == PSC_OK);
    check(psc_worker_thread_start(pair->a.worker, PATIENT_NS) ==
          PSC_ERR_INVALID);
    if (pair->b.worker != pair->a.worker)
        check(psc_worker_thread_start(pair->b.worker, PATIENT_NS) == PSC_OK);
}

/* Wait without making progress. */
static void await_done(psc_request_t *request)
{
    int64_t end = psc_clock_now() + PATIENCE_NS;

    while (request && !done(request)) {
        check(psc_clock_now() < end);
        usleep(100);
    }
    if (request)
        api->request_free(request);
}

static void exchange_driven(side_t *from, side_t *to, size_t len)
{
    char *out = malloc(len), *in = calloc(1, len);
    psc_request_t *send, *recv;
    psc_result_t result;

    fill(out, len, (unsigned)len);
    recv = post_recv(to, to->conn, in, len, 7, &result);
    send = post_send(from, out, len, 7);
    await_done(recv);
    await_done(send);
    check(filled(in, len, (unsigned)len));
    free(in);
    free(out);
}

/* Exchanges with pauses of many lengths, so that the threads find the worker
 * both busy and idle. */
CASE(driven)
{
    static const size_t lengths[] = {8, 5000, 100000, 1 << 20};
    pair_t pair;

    pair_open_driven(&pair);
    for (unsigned round = 0; round < 40; round++) {
        exchange_driven(&pair.a, &pair.b, lengths[round % 4]);
        exchange_driven(&pair.b, &pair.a, lengths[round / 4 % 4]);
        usleep(round * 37 % 1000);
    }
    pair_close(&pair);
}

/* ---- among others ---- */

#define DRIVEN_ROUNDS 200

static void wait_done(side_t *side, psc_request_t *request)
{
    psc_status_t status = PSC_OK;

    while (request && !done(request)) {
        status =
            api->wait(side->worker, &request, 1, PSC_WAIT_ALL, PATIENCE_NS);
        check(status == PSC_OK || status == PSC_ERR_INTERRUPTED);
    }
    if (request)
        api->request_free(request);
}

static void *answer(void *arg)
{
    side_t *side = arg;
    psc_result_t result;
    char byte;

    for (unsigned i = 0; i < DRIVEN_ROUNDS; i++) {
        wait_done(side, post_recv(side, side->conn, &byte, 1, 1, &result));
        usleep(i * 53 % 700);
        wait_done(side, post_send(side, &byte, 1, 2));
    }
    return NULL;
}

/* One side waits. The other sometimes pauses for longer than the progress
 * thread's patience. Large messages are moved only by the progress threads. */
CASE(driven_and_waited)
{
    pthread_t thread;
    psc_result_t result;
    char byte = 'x';
    pair_t pair;

    pair_open_driven(&pair);
    check(pthread_create(&thread, NULL, answer, &pair.b) == 0);
    for (unsigned i = 0; i < DRIVEN_ROUNDS; i++) {
        wait_done(&pair.a, post_send(&pair.a, &byte, 1, 1));
        if (i % 10 == 0)
            exchange_driven(&pair.a, &pair.b, 300000);
        wait_done(&pair.a,
                  post_recv(&pair.a, pair.a.conn, &byte, 1, 2, &result));
    }
    check(pthread_join(thread, NULL) == 0);
    pair_close(&pair);
}
