/* Messages whose receives are given up: none is lost, none is received twice,
 * and none overtakes another. */
#include "harness.h"
#include "pscompy/core/conn.h"

enum { LARGE = 300000 };

/* Send a message; its request must be waited for at the end, because a
 * rendezvous completes with its receive. */
static psc_request_t *send_filled(pair_t *pair, size_t len, int32_t tag)
{
    char *out = malloc(len + 1);
    psc_request_t *request;

    fill(out, len, (unsigned)tag);
    request = post_send(&pair->a, out, len, tag);
    if (request)
        ((psc_req_t *)request)->head.owner = out;
    else
        free(out);
    return request;
}

static void send_end(pair_t *pair, psc_request_t *request, psc_status_t status)
{
    void *out = request ? request->owner : NULL;

    if (request)
        check(finish(pair, request).status == status);
    free(out);
}

/* Check that the next message of any tag is this one. */
static void expect_next(pair_t *pair, size_t len, int32_t tag)
{
    char *in = malloc(len + 1);
    psc_result_t result;
    psc_request_t *recv =
        post_recv(&pair->b, pair->b.conn, in, len, PSC_ANY_TAG, &result);

    if (recv)
        result = finish(pair, recv);
    check(result.status == PSC_OK && result.tag == tag &&
          result.nbytes == len && filled(in, len, (unsigned)tag));
    free(in);
}

static void unexpected(pair_t *pair, uint64_t n)
{
    until(pair, count(pair->b.worker, PSC_COUNTER_unexpected) == n);
}

static void requeue(pair_t *pair, const psc_result_t *result, void *base,
                    size_t len)
{
    psc_iov_t iov[] = {{base, len / 3},
                       {(char *)base + len / 3, len - len / 3}};

    check(api->recv_return(pair->b.worker, CONTEXT, result, iov, 2) == PSC_OK);
    memset(base, 0xee, len);
}

/* ---- messages that have arrived ---- */

static void to_its_place(size_t len, bool any)
{
    char *in = malloc(len + 1);
    psc_request_t *recv, *sends[3];
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    recv = post_recv(&pair.b, any ? NULL : pair.b.conn, in, len, 2, &result);
    sends[0] = send_filled(&pair, len, 1);
    unexpected(&pair, 1);
    sends[1] = send_filled(&pair, len, 2);
    result = finish(&pair, recv);
    sends[2] = send_filled(&pair, len, 3);
    unexpected(&pair, 2);
    requeue(&pair, &result, in, len);
    for (int32_t tag = 1; tag <= 3; tag++)
        expect_next(&pair, len, tag);
    for (int i = 0; i < 3; i++)
        send_end(&pair, sends[i], PSC_OK);
    check(count(pair.b.worker, PSC_COUNTER_given_back) == 1);
    pair_close(&pair);
    free(in);
}

CASE(given_back_to_its_place)
{
    static const size_t lengths[] = {0, 100, 30000, LARGE};

    for (unsigned i = 0; i < 4; i++) {
        to_its_place(lengths[i], false);
        to_its_place(lengths[i], true);
    }
}

/* A receive without buffer that matched on arrival and is cancelled. */
CASE(given_back_without_its_buffer)
{
    psc_recv_args_t args = {
        .context = CONTEXT, .tag = 2, .flags = PSC_FLAG_NO_BUFFER};
    psc_request_t *recv = NULL;
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    args.source = pair.b.conn;
    check(api->recv(pair.b.worker, &args, &result, &recv) == PSC_INPROGRESS);
    send_end(&pair, send_filled(&pair, 50, 1), PSC_OK);
    unexpected(&pair, 1);
    send_end(&pair, send_filled(&pair, 50, 2), PSC_OK);
    until(&pair, psc_request_state(recv) == PSC_REQUEST_MATCHED);
    api->request_free(recv);
    expect_next(&pair, 50, 1);
    expect_next(&pair, 50, 2);
    pair_close(&pair);
}

CASE(given_back_to_who_waits)
{
    char first[100], second[100];
    psc_request_t *recv, *waiting;
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    recv = post_recv(&pair.b, pair.b.conn, first, 100, 2, &result);
    waiting = post_recv(&pair.b, NULL, second, 100, PSC_ANY_TAG, &result);
    send_end(&pair, send_filled(&pair, 100, 2), PSC_OK);
    result = finish(&pair, recv);
    check(psc_request_state(waiting) == PSC_REQUEST_ACTIVE);
    requeue(&pair, &result, first, 100);
    check(done(waiting));
    check(finish(&pair, waiting).order == result.order);
    check(filled(second, 100, 2));
    pair_close(&pair);
}

/* Bytes for which the buffer had no room are lost when the message is given
 * back. */
static void truncated(pair_t *pair, size_t len)
{
    enum { ROOM = 64 };
    char in[ROOM], *all = malloc(len);
    psc_request_t *recv, *send;
    psc_result_t result;

    recv = post_recv(&pair->b, pair->b.conn, in, ROOM, 5, &result);
    send = send_filled(pair, len, 5);
    result = finish(pair, recv);
    check(result.status == PSC_ERR_TRUNCATED);
    requeue(pair, &result, in, ROOM);
    check(!post_recv(&pair->b, pair->b.conn, all, len, 5, &result));
    check(result.status == PSC_ERR_TRUNCATED && result.nbytes == len);
    check(filled(all, ROOM, 5));
    send_end(pair, send, PSC_OK);
    free(all);
}

CASE(given_back_truncated)
{
    pair_t pair;

    pair_open(&pair);
    truncated(&pair, 1000);
    truncated(&pair, LARGE);
    pair_close(&pair);
}

CASE(given_back_too_late)
{
    char in[100];
    psc_iov_t iov = {in, 100};
    psc_request_t *recv;
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    recv = post_recv(&pair.b, pair.b.conn, in, 100, 2, &result);
    check(!send_filled(&pair, 100, 2));
    result = finish(&pair, recv);
    psc_conn_destroy(pair.b.conn);
    check(api->recv_return(pair.b.worker, CONTEXT, &result, &iov, 1) ==
          PSC_ERR_CLOSED);
    pair_close(&pair);
}

/* ---- messages that are still arriving ---- */

static psc_stage_t stage_of(const psc_request_t *request)
{
    return ((const psc_req_t *)request)->stage;
}

static bool matched(const psc_request_t *request)
{
    return stage_of(request) != PSC_STAGE_POSTED &&
           stage_of(request) != PSC_STAGE_HANDED;
}

/* Give a receive up as soon as it has matched, i.e. when the RTS has arrived.
 * Returns the status with which it ends; it may be done already. */
static psc_status_t give_up(pair_t *pair, psc_request_t *recv, void *in,
                            size_t len)
{
    psc_status_t status;
    psc_result_t result;

    until(pair, matched(recv));
    status = api->recv_give_up(recv);
    if (status != PSC_ERR_INVALID)
        return PSC_ERR_CANCELLED;
    check(done(recv));
    result = recv->result;
    requeue(pair, &result, in, len);
    return PSC_OK;
}

static void on_its_way(psc_rndv_scheme_t scheme, bool any)
{
    char *in = malloc(LARGE), *again = malloc(LARGE);
    psc_request_t *recv, *next, *send;
    psc_result_t result;
    pair_t pair;
    psc_status_t end;

    options.scheme = scheme;
    pair_open(&pair);
    recv = post_recv(&pair.b, any ? NULL : pair.b.conn, in, LARGE, 4, &result);
    send = send_filled(&pair, LARGE, 4);
    end = give_up(&pair, recv, in, LARGE);
    next = post_recv(&pair.b, NULL, again, LARGE, PSC_ANY_TAG, &result);
    /* does not overtake the returned message */
    check(!send_filled(&pair, 10, 6));
    check(finish(&pair, recv).status == end);
    memset(in, 0, LARGE);
    if (next)
        result = finish(&pair, next);
    check(result.status == PSC_OK && result.nbytes == LARGE);
    check(filled(again, LARGE, 4));
    expect_next(&pair, 10, 6);
    send_end(&pair, send, PSC_OK);
    pair_close(&pair);
    free(in);
    free(again);
}

CASE(given_up_on_its_way)
{
    static const psc_rndv_scheme_t schemes[] = {PSC_RNDV_AUTO, PSC_RNDV_PUT,
                                                PSC_RNDV_GET, PSC_RNDV_AM};

    for (unsigned i = 0; i < 4; i++) {
        on_its_way(schemes[i], false);
        on_its_way(schemes[i], true);
    }
}

/* A second receive, which waits for the rest of the message, is given up,
 * too. */
CASE(given_up_twice)
{
    char *in = malloc(LARGE), *again = malloc(LARGE);
    psc_request_t *recv, *next, *send;
    psc_result_t result;
    pair_t pair;
    psc_status_t end;

    options.scheme = PSC_RNDV_AM;
    pair_open(&pair);
    recv = post_recv(&pair.b, pair.b.conn, in, LARGE, 4, &result);
    send = send_filled(&pair, LARGE, 4);
    end = give_up(&pair, recv, in, LARGE);
    next = post_recv(&pair.b, pair.b.conn, again, LARGE, 4, &result);
    if (next) {
        check(api->recv_give_up(next) == PSC_OK);
        check(finish(&pair, next).status == PSC_ERR_CANCELLED);
    } else {
        requeue(&pair, &result, again, LARGE);
    }
    expect_next(&pair, LARGE, 4);
    check(finish(&pair, recv).status == end);
    send_end(&pair, send, PSC_OK);
    pair_close(&pair);
    free(in);
    free(again);
}

/* The connection is lost while the rest of the message is in flight, and
 * another message waits for a receive of the peer. `who`
 * selects what waits for it: 0: a receive without a buffer, 1: one with a
 * buffer, 2: none. */
static void and_lost(int who)
{
    char *in = malloc(LARGE), *again = malloc(LARGE);
    psc_iov_t iov = {again, LARGE};
    psc_recv_args_t args = {.context = CONTEXT, .tag = 4};
    psc_request_t *recv, *next = NULL, *send, *unreceived;
    psc_result_t result;
    pair_t pair;
    psc_status_t end;
    bool moving;

    options.scheme = PSC_RNDV_AM;
    pair_open(&pair);
    args.source = pair.b.conn;
    if (who == 0)
        args.flags = PSC_FLAG_NO_BUFFER;
    args.iov = &iov;
    args.n_iov = who;
    recv = post_recv(&pair.b, pair.b.conn, in, LARGE, 4, &result);
    unreceived = post_send(&pair.b, in, LARGE, 5);
    send = send_filled(&pair, LARGE, 4);
    end = give_up(&pair, recv, in, LARGE);
    moving = !done(recv);
    if (who < 2 && moving)
        check(api->recv(pair.b.worker, &args, &result, &next) ==
              PSC_INPROGRESS);
    psc_conn_fail(pair.b.conn, PSC_ERR_PEER_LOST);
    until(&pair, done(recv));
    check(recv->result.status == (moving ? PSC_ERR_PEER_LOST : end));
    api->request_free(recv);
    check(finish(&pair, unreceived).status == PSC_ERR_PEER_LOST);
    if (next)
        check(finish(&pair, next).status == PSC_ERR_PEER_LOST);
    psc_conn_fail(pair.a.conn, PSC_ERR_PEER_LOST);
    until(&pair, done(send));
    free(send->owner);
    api->request_free(send);
    pair_close(&pair);
    free(in);
    free(again);
}

CASE(given_up_and_lost)
{
    for (int who = 0; who < 3; who++)
        and_lost(who);
}
