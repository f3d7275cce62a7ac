/* The completion queue: each request that is done or matched is returned once,
 * in order, without the worker's lock. */
#include <pthread.h>

#include "harness.h"
#include "pscompy/core/conn.h"

static psc_request_t *post_notified(side_t *side, psc_iov_t *iov, size_t n_iov,
                                    uint32_t flags)
{
    psc_recv_args_t args = {.source = side->conn,
                            .context = CONTEXT,
                            .tag = PSC_ANY_TAG,
                            .iov = iov,
                            .n_iov = n_iov,
                            .flags = PSC_FLAG_NOTIFY | flags};
    psc_request_t *request = NULL;
    psc_result_t result;

    check(api->recv(side->worker, &args, &result, &request) == PSC_INPROGRESS);
    return request;
}

/* ---- once ---- */

/* A receive without buffer is notified when it has matched. Its completion is
 * notified only if it happens after recv_supply has returned. */
static void notified_once(pair_t *pair, size_t len, bool whole)
{
    char *out = malloc(len), *in = malloc(len);
    psc_iov_t iov = {in, len};
    psc_request_t *recv = post_notified(&pair->b, NULL, 0, PSC_FLAG_NO_BUFFER);
    psc_request_t *send;
    psc_status_t status;

    fill(out, len, 1);
    send = post_send(&pair->a, out, len, 1);
    until(pair, api->pending(pair->b.worker));
    check(api->completion_poll(pair->b.worker) == recv);
    check(psc_request_state(recv) == PSC_REQUEST_MATCHED);
    settle(pair); /* an eager message must have arrived completely */
    status = api->recv_supply(recv, &iov, 1);
    check(status == PSC_OK || (!whole && status == PSC_INPROGRESS));
    whole = status == PSC_OK; /* a long message may be complete at once, too */
    until(pair, done(recv));
    check(api->completion_poll(pair->b.worker) == (whole ? NULL : recv));
    check(!api->pending(pair->b.worker));
    check(!api->completion_poll(pair->b.worker));
    check(finish(pair, recv).nbytes == len && filled(in, len, 1));
    sent(pair, send);
    free(out);
    free(in);
}

CASE(notified_once)
{
    pair_t pair;

    pair_open(&pair);
    notified_once(&pair, 8, true);
    notified_once(&pair, 900, true);
    notified_once(&pair, 300000, false);
    pair_close(&pair);
}

/* ---- without the lock ---- */

/* The test holds the lock itself: a call that took the lock would never
 * return. */
CASE(handed_over_without_the_lock)
{
    enum { N = 3 };
    psc_request_t *recv[N];
    char in[N][8];
    pair_t pair;

    pair_open(&pair);
    for (int i = 0; i < N; i++)
        recv[i] = post_notified(&pair.b, &(psc_iov_t){in[i], 8}, 1, 0);
    for (int i = 0; i < N; i++)
        check(!post_send(&pair.a, "message", 8, i));
    until(&pair, done(recv[N - 1]));
    psc_lock_acquire(&pair.b.worker->lock);
    for (int i = 0; i < N; i++) {
        check(api->completion_poll(pair.b.worker) == recv[i]);
        check(recv[i]->result.tag == i);
        api->request_free(recv[i]);
    }
    check(!api->completion_poll(pair.b.worker));
    psc_lock_release(&pair.b.worker->lock);
    pair_close(&pair);
}

/* ---- freed ---- */

/* Requests that are freed before they are polled are not returned any more and
 * are reused: the pool does not grow. */
CASE(freed_in_the_queue)
{
    char in[8];
    psc_iov_t iov = {in, sizeof in};
    psc_request_t *recv;
    pair_t pair;

    pair_open(&pair);
    for (int i = 0; i < 1000; i++) {
        recv = post_notified(&pair.b, &iov, 1, 0);
        check(!post_send(&pair.a, "message", 8, 1));
        until(&pair, done(recv));
        check(api->pending(pair.b.worker));
        api->request_free(recv);
        check(!api->pending(pair.b.worker));
        check(i % 300 != 0 || !api->completion_poll(pair.b.worker));
    }
    check(psc_requests_count(&pair.b.worker->requests) <= PSC_REQ_CHUNK);
    pair_close(&pair);
}

/* A receive that matched, got its buffer before anyone polled, and is freed
 * before its data has arrived: it completes by itself. */
CASE(freed_while_in_flight)
{
    enum { LENGTH = 300000 };
    char *out = malloc(LENGTH), *in = malloc(LENGTH);
    psc_iov_t iov = {in, LENGTH};
    psc_request_t *recv, *send;
    pair_t pair;

    pair_open(&pair);
    fill(out, LENGTH, 2);
    for (int i = 0; i < 200; i++) {
        recv = post_notified(&pair.b, NULL, 0, PSC_FLAG_NO_BUFFER);
        send = post_send(&pair.a, out, LENGTH, 1);
        until(&pair, psc_request_state(recv) == PSC_REQUEST_MATCHED);
        check(api->recv_supply(recv, &iov, 1) >= 0);
        api->request_free(recv);
        check(i % 2 || !api->completion_poll(pair.b.worker));
        check(finish(&pair, send).status == PSC_OK);
    }
    settle(&pair);
    check(filled(in, LENGTH, 2));
    check(!api->pending(pair.b.worker));
    check(psc_requests_count(&pair.b.worker->requests) <= 2 * PSC_REQ_CHUNK);
    pair_close(&pair);
    free(out);
    free(in);
}

/* ---- two threads ---- */

#define BESIDE_MESSAGES 300

static atomic_bool beside_done;

static void *beside_poll(void *arg)
{
    pair_t *pair = arg;

    while (!atomic_load(&beside_done))
        pair_progress(pair);
    return NULL;
}

/* One thread polls the worker. The other takes every second request from the
 * queue, and frees the rest as soon as it sees that they are done. */
CASE(completions_beside_the_poller)
{
    pthread_t poller;
    char in[8];
    psc_iov_t iov = {in, sizeof in};
    pair_t pair;

    atomic_store(&beside_done, false);
    pair_open(&pair);
    check(pthread_create(&poller, NULL, beside_poll, &pair) == 0);
    for (int i = 0; i < BESIDE_MESSAGES; i++) {
        psc_request_t *recv = post_notified(&pair.b, &iov, 1, 0),
                      *polled = NULL;
        psc_request_t *send = post_send(&pair.a, "message", 8, i);
        int64_t end = psc_clock_now() + PATIENCE_NS;

        if (send)
            api->request_free(send);
        while (i % 2 && !done(recv))
            check(psc_clock_now() < end);
        while (i % 2 == 0 && !(polled = api->completion_poll(pair.b.worker)))
            check(psc_clock_now() < end);
        check(i % 2 || (polled == recv && polled->result.tag == i));
        api->request_free(recv);
    }
    atomic_store(&beside_done, true);
    check(pthread_join(poller, NULL) == 0);
    check(!api->pending(pair.b.worker));
    pair_close(&pair);
}
