/* Messages of a thread in C, which has an endpoint, to and from all other
 * ranks. Order, length and contents of each are checked. Called by
 * test_storm.py, in each thread once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pscompy/core/api.h"

enum {
    BLOCK = 256, /* the messages to each peer that are in flight at once */
    POLLS = 200,
    OFTEN = 1000, /* the longest body of most messages */
    SELDOM = 70000, /* the body of one message in 4,096: a rendezvous */
};

typedef struct {
    uint32_t sender, endpoint, number;
} head_t;

typedef struct {
    const psc_api_t *api;
    psc_worker_t *worker;
    psc_conn_t *const *peers;
    unsigned n_peers;
    uint32_t rank, endpoint;
    uint32_t *expected; /* the next number from each rank */
    psc_request_t **sent; /* sends in flight */
    unsigned n_sent;
    uint8_t *out, *in, *wanted;
} storm_t;

/* A tag for each block, since a receive from any rank must not take a message
 * of the next block. */
static int32_t block_tag(uint32_t first)
{
    return (int32_t)(first / BLOCK);
}

static size_t body_len(uint32_t number)
{
    static const size_t often[] = {0, 8, OFTEN, 100};

    return number % 4096 == 4095 ? SELDOM : often[number % 4];
}

static size_t write_message(uint8_t *at, head_t head)
{
    size_t len = body_len(head.number);

    memcpy(at, &head, sizeof head);
    memset(at + sizeof head,
           (int)(head.sender + 3 * head.endpoint + head.number) & 0xff, len);
    return sizeof head + len;
}

static int finish(const storm_t *it, psc_request_t *request,
                  psc_result_t *result)
{
    psc_status_t status;

    do {
        status =
            it->api->wait(it->worker, &request, 1, PSC_WAIT_ALL, PSC_FOREVER);
    } while (status == PSC_ERR_INTERRUPTED || status == PSC_INPROGRESS);
    *result = request->result;
    it->api->request_free(request);
    return status != PSC_OK ? status : result->status;
}

static int send_block(storm_t *it, uint32_t first, uint32_t end)
{
    uint8_t *at = it->out;

    for (uint32_t number = first; number < end; number++) {
        size_t len =
            write_message(at, (head_t){it->rank, it->endpoint, number});
        psc_iov_t iov = {at, len};
        psc_send_args_t args = {
            .tag = block_tag(first), .iov = &iov, .n_iov = 1};

        for (unsigned i = 0; i < it->n_peers; i++) {
            psc_request_t **sent = &it->sent[it->n_sent];
            int status = it->api->send(it->peers[i], &args, sent);

            if (status < 0)
                return status;
            it->n_sent += status == PSC_INPROGRESS;
        }
        at += len;
    }
    return 0;
}

static int check(storm_t *it, const psc_result_t *result)
{
    uint32_t *number = &it->expected[result->rank];
    head_t head = {(uint32_t)result->rank, it->endpoint, *number};
    size_t len = write_message(it->wanted, head);

    if (result->nbytes != len || memcmp(it->in, it->wanted, len) != 0) {
        fprintf(stderr, "rank %u, endpoint %u: not message %u of rank %d\n",
                it->rank, it->endpoint, *number, result->rank);
        return PSC_ERR_PROTOCOL;
    }
    ++*number;
    return 0;
}

/* `source` NULL: from any rank. */
static int receive(storm_t *it, psc_conn_t *source, int32_t tag)
{
    psc_iov_t iov = {it->in, sizeof(head_t) + SELDOM};
    psc_recv_args_t args = {
        .source = source, .tag = tag, .iov = &iov, .n_iov = 1, .polls = POLLS};
    psc_request_t *request = NULL;
    psc_result_t result;
    int status = it->api->recv(it->worker, &args, &result, &request);

    if (status == PSC_INPROGRESS)
        status = finish(it, request, &result);
    return status < 0 ? status : check(it, &result);
}

static int receive_block(storm_t *it, uint32_t first, uint32_t end)
{
    int32_t tag = block_tag(first);
    int status = 0;

    for (uint32_t number = first; number < end; number++)
        for (unsigned i = 0; i < it->n_peers && status == 0; i++)
            status = receive(it, tag % 2 ? NULL : it->peers[i], tag);
    return status;
}

static int finish_block(storm_t *it)
{
    psc_result_t result;
    int status = 0;

    while (it->n_sent > 0 && status == 0)
        status = finish(it, it->sent[--it->n_sent], &result);
    return status;
}

static int run(storm_t *it, uint32_t count)
{
    int status = 0;

    for (uint32_t first = 0; first < count && status == 0; first += BLOCK) {
        uint32_t end = first + BLOCK < count ? first + BLOCK : count;

        status = send_block(it, first, end);
        if (status == 0)
            status = receive_block(it, first, end);
        if (status == 0)
            status = finish_block(it);
    }
    return status;
}

/* Returns 0, or the status of the first call that failed. */
int storm(const psc_api_t *api, psc_worker_t *worker, psc_conn_t *const *peers,
          unsigned n_peers, uint32_t rank, uint32_t endpoint, uint32_t count)
{
    size_t most = sizeof(head_t) + SELDOM;
    storm_t it = {.api = api,
                  .worker = worker,
                  .peers = peers,
                  .n_peers = n_peers,
                  .rank = rank,
                  .endpoint = endpoint,
                  .expected = calloc(n_peers + 1, sizeof(uint32_t)),
                  .sent = calloc((size_t)BLOCK * n_peers, sizeof(void *)),
                  .out = malloc(BLOCK * (sizeof(head_t) + OFTEN) + most),
                  .in = malloc(most),
                  .wanted = malloc(most)};
    int status =
        api->abi == PSC_API_ABI ? run(&it, count) : PSC_ERR_UNSUPPORTED;

    free(it.expected);
    free(it.sent);
    free(it.out);
    free(it.in);
    free(it.wanted);
    return status;
}
