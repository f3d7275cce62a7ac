/* Threads in C that exchange messages with themselves, each over a connection
 * of a worker that it has alone or shares. Called by endpoints.py. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pscompy/core/api.h"

enum { SHORT = 8, POLLS = 1000, LINE = 64 };

typedef struct {
    const psc_api_t *api;
    psc_worker_t *worker;
    psc_conn_t *conn;
    int32_t tag;
    char *out, *in;
    size_t size; /* of both */
    long count; /* of messages; 0: until *stop */
    int *stop; /* NULL: no time is taken of each message */
    long done;
    double longest; /* seconds of one message */
    int failed;
} loop_t;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int finish(const loop_t *it, psc_request_t *request)
{
    psc_status_t status;

    do {
        status =
            it->api->wait(it->worker, &request, 1, PSC_WAIT_ALL, PSC_FOREVER);
    } while (status == PSC_ERR_INTERRUPTED || status == PSC_INPROGRESS);
    it->api->request_free(request);
    return status == PSC_OK ? 0 : -1;
}

static int exchange(const loop_t *it)
{
    psc_iov_t from = {it->out, it->size}, to = {it->in, it->size};
    psc_send_args_t send = {.tag = it->tag, .iov = &from, .n_iov = 1};
    psc_recv_args_t recv = {.source = it->conn,
                            .tag = it->tag,
                            .iov = &to,
                            .n_iov = 1,
                            .polls = POLLS};
    psc_request_t *sent = NULL, *received = NULL;
    psc_result_t result;
    psc_status_t status = it->api->send(it->conn, &send, &sent);

    if (status < 0)
        return -1;
    status = it->api->recv(it->worker, &recv, &result, &received);
    if (status < 0 || (received && finish(it, received)))
        return -1;
    return sent ? finish(it, sent) : 0;
}

static void *loop_main(void *arg)
{
    loop_t *it = arg;

    memset(it->out, 1, it->size);
    while (!it->failed &&
           (it->count ? it->done < it->count
                      : !__atomic_load_n(it->stop, __ATOMIC_RELAXED))) {
        double start = it->stop ? now() : 0, taken;

        it->failed = exchange(it);
        taken = it->stop ? now() - start : 0;
        it->longest = taken > it->longest ? taken : it->longest;
        it->done++;
    }
    return NULL;
}

/* The seconds in which `n` threads together exchange `count` messages of 8 B
 * each, from buffers and into buffers that begin `apart` bytes after those of
 * the thread before; negative if that failed. `apart` is 64 at most. */
double endpoints_rate(const psc_api_t *api, unsigned n, psc_worker_t **workers,
                      psc_conn_t **conns, long count, size_t apart)
{
    char *buffers = aligned_alloc(LINE, 2 * LINE * (size_t)n);
    loop_t loops[n];
    pthread_t threads[n];
    int failed = 0;
    double start = now();

    for (unsigned i = 0; i < n; i++) {
        loops[i] = (loop_t){.api = api,
                            .worker = workers[i],
                            .conn = conns[i],
                            .tag = (int32_t)i,
                            .out = buffers + i * apart,
                            .in = buffers + LINE * n + i * apart,
                            .size = SHORT,
                            .count = count};
        pthread_create(&threads[i], NULL, loop_main, &loops[i]);
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        failed |= loops[i].failed;
    }
    free(buffers);
    return failed ? -1 : now() - start;
}

/* The messages per second of a thread with messages of 8 B, while another one
 * exchanges `count` messages of `size` bytes; negative if that failed.
 * *longest_p: seconds of the longest of the short ones. */
double endpoints_beside(const psc_api_t *api, psc_worker_t **workers,
                        psc_conn_t **conns, size_t size, long count,
                        double *longest_p)
{
    char *buffers = malloc(2 * (size + SHORT));
    int stop = 0;
    loop_t large = {.api = api,
                    .worker = workers[1],
                    .conn = conns[1],
                    .tag = 1,
                    .out = buffers,
                    .in = buffers + size,
                    .size = size,
                    .count = count};
    loop_t little = {.api = api,
                     .worker = workers[0],
                     .conn = conns[0],
                     .out = buffers + 2 * size,
                     .in = buffers + 2 * size + SHORT,
                     .size = SHORT,
                     .stop = &stop};
    pthread_t other;
    double start;

    pthread_create(&other, NULL, loop_main, &little);
    start = now();
    loop_main(&large);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(other, NULL);
    free(buffers);
    *longest_p = little.longest;
    if (little.failed || large.failed)
        return -1;
    return (double)little.done / (now() - start);
}
