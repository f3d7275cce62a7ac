/* The cases of tuples.c and tuple_threads.c, and what they share. */
#pragma once

#include "harness.h"
#include "pscompy/core/conn.h"

enum { LEN = 300000, MIN = 8192, TABLE = PSC_EXPOSED_MAX };

/* Returns true if the transport shows receives to the peer. */
static inline bool advertises(const pair_t *pair)
{
    return pair->b.conn->tuple && !pair->b.conn->tuple_am;
}

static inline void open_tuples(pair_t *pair)
{
    options.tuple_min = MIN;
    options.tuple_am = true;
    pair_open(pair);
}

static inline psc_request_t *expect(pair_t *pair, void *in, size_t room,
                                    int32_t tag)
{
    psc_result_t result;
    psc_request_t *recv =
        post_recv(&pair->b, pair->b.conn, in, room, tag, &result);

    check(recv);
    return recv;
}

static inline void expect_ok(psc_result_t result, const void *in, size_t len,
                             unsigned seed)
{
    check(result.status == PSC_OK && result.nbytes == len &&
          filled(in, len, seed));
}

/* Receive b's next message. */
static inline void expect_next(pair_t *pair, void *in, size_t len,
                               unsigned seed)
{
    psc_result_t result;
    psc_request_t *recv =
        post_recv(&pair->b, NULL, in, len, PSC_ANY_TAG, &result);

    expect_ok(recv ? finish(pair, recv) : result, in, len, seed);
}

/* A message of a that b has matched, but not received. */
static inline psc_request_t *probe_for(pair_t *pair, int32_t tag)
{
    psc_recv_args_t args = {.source = pair->b.conn,
                            .context = CONTEXT,
                            .tag = tag,
                            .flags = PSC_FLAG_NO_BUFFER};
    psc_result_t result = {0};
    psc_request_t *request = NULL;

    until(pair, count(pair->b.worker, PSC_COUNTER_unexpected) > 0);
    api->recv(pair->b.worker, &args, &result, &request);
    check(request && psc_request_state(request) == PSC_REQUEST_MATCHED);
    return request;
}

/* Cancel a receive of b that no message has claimed. Its request remains. */
static inline void cancelled(pair_t *pair, psc_request_t *recv)
{
    psc_status_t status = api->cancel(recv);

    check(status == PSC_OK ||
          (status == PSC_INPROGRESS && pair->b.conn->tuple_am));
    until(pair, done(recv));
    check(recv->result.status == PSC_ERR_CANCELLED);
}
