/* Threads of C in two processes exchange messages by psc_api_t. Each receive
 * sleeps in `wait`, so each can miss its wake-up. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "pscompy/core/api.h"

enum { THREADS = 4 };

typedef struct stream {
    const psc_api_t *api;
    psc_worker_t *worker;
    psc_conn_t *conn;
    int32_t tag;
    int first;
    long rounds;
    pthread_t thread;
} stream_t;

static void check(psc_status_t status, const char *call)
{
    if (status == PSC_OK)
        return;
    fprintf(stderr, "%s: status %d\n", call, (int)status);
    abort();
}

static void finish(const stream_t *self, psc_request_t *request)
{
    psc_status_t status;

    do
        status =
            self->api->wait(self->worker, &request, 1, PSC_WAIT_ALL, INT64_MAX);
    while (status == PSC_ERR_INTERRUPTED || status == PSC_INPROGRESS);
    check(status, "wait");
    check(request->result.status, "the request that was waited for");
    self->api->request_free(request);
}

static void send_number(const stream_t *self, long number)
{
    psc_iov_t iov = {&number, sizeof number};
    psc_send_args_t args = {
        .context = PSC_CONTEXT_USER, .tag = self->tag, .iov = &iov, .n_iov = 1};
    psc_request_t *request = NULL;
    psc_status_t status = self->api->send(self->conn, &args, &request);

    if (status == PSC_INPROGRESS)
        finish(self, request);
    else
        check(status, "send");
}

static void recv_number(const stream_t *self, long expected)
{
    long number = -1;
    psc_iov_t iov = {&number, sizeof number};
    psc_recv_args_t args = {.source = self->conn,
                            .context = PSC_CONTEXT_USER,
                            .tag = self->tag,
                            .iov = &iov,
                            .n_iov = 1};
    psc_result_t result;
    psc_request_t *request = NULL;
    psc_status_t status =
        self->api->recv(self->worker, &args, &result, &request);

    if (status == PSC_INPROGRESS)
        finish(self, request);
    else
        check(status, "recv");
    if (number == expected)
        return;
    fprintf(stderr, "received %ld, expected %ld\n", number, expected);
    abort();
}

static void *stream_run(void *arg)
{
    const stream_t *self = arg;

    for (long i = 0; i < self->rounds; i++) {
        if (self->first)
            send_number(self, i);
        recv_number(self, i);
        if (!self->first)
            send_number(self, i);
    }
    return NULL;
}

/* Runs THREADS threads, which receive `waits` messages together. The test calls
 * this function by ctypes. */
void waits_run(const psc_api_t *api, psc_worker_t *worker, psc_conn_t *conn,
               int first, long waits)
{
    stream_t streams[THREADS];

    for (int i = 0; i < THREADS; i++) {
        streams[i] = (stream_t){.api = api,
                                .worker = worker,
                                .conn = conn,
                                .tag = 100 + i,
                                .first = first,
                                .rounds = waits / THREADS};
        check(pthread_create(&streams[i].thread, NULL, stream_run, &streams[i]),
              "pthread_create");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(streams[i].thread, NULL);
}
