/* Long messages that are sent at once, because the peer has advert a receive by
 * a message (tuple_am.h). A transport that moves long messages otherwise sends
 * the same messages, and the results are checked there, too. */
#include <poll.h>

#include "claims.h"
#include "pscompy/proto/tuple.h"

/* Let a send while b is away. */
static void progress_of_a(pair_t *pair)
{
    for (int i = 0; i < 100; i++)
        api->progress(pair->a.worker, 0);
}

/* Credit is neither lost by claims nor gained. */
static void check_credit(pair_t *pair)
{
    const psc_flow_t *here = &pair->a.conn->flow, *there = &pair->b.conn->flow;

    settle(pair);
    check(there->consumed == there->got);
    check(psc_flow_has(here, PSC_CREDIT_INITIAL) &&
          !psc_flow_has(here, PSC_CREDIT_INITIAL + 1));
}

/* ---- messages that are expected ---- */

/* Returns false if the transport moves long messages otherwise. */
static bool expected_message(size_t len, int32_t tag, uint64_t placed)
{
    char *in = calloc(1, len), *out = malloc(len);
    psc_request_t *recv, *send;
    pair_t pair;
    bool told;

    open_tuples(&pair);
    told = tells(&pair);
    fill(out, len, 1);
    recv = expect_told(&pair, in, len, tag);
    send = post_send(&pair.a, out, len, 7);
    expect_ok(finish(&pair, recv), in, len, 1);
    sent(&pair, send);
    if (told) {
        check(count(pair.a.worker, PSC_COUNTER_tuple_placed) == placed);
        check(count(pair.b.worker, PSC_COUNTER_tuple_taken) == placed);
        check(count(pair.a.worker, PSC_COUNTER_rndv_rts) == 1 - placed);
        /* counts the RTRs that arrived */
        check(count(pair.a.worker, PSC_COUNTER_rndv_am) == 1 - placed);
        check(count(pair.b.worker, PSC_COUNTER_copied_bytes) == len);
        check_credit(&pair);
    }
    pair_close(&pair);
    free(in);
    free(out);
    return told;
}

/* No RTS and no RTR for messages up to PSC_CLAIM_MAX. */
CASE(claim_of_an_expected_message)
{
    static const size_t lens[] = {MIN, 65536, LEN, PSC_CLAIM_MAX};

    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        if (!expected_message(lens[i], 7, 1))
            return;
        expected_message(lens[i], PSC_ANY_TAG, 1);
    }
    expected_message(PSC_CLAIM_MAX + 1, 7, 0);
}

/* A program that only sends has not read what it was told. */
CASE(claim_reads_first)
{
    char *in = calloc(1, LEN), *out = malloc(LEN);
    psc_request_t *recv, *send;
    pair_t pair;

    open_tuples(&pair);
    fill(out, LEN, 3);
    recv = expect(&pair, in, LEN, 5);
    if (tells(&pair)) {
        struct pollfd news = {.fd = psc_worker_fabric_fd(pair.a.worker),
                              .events = POLLIN};

        check(poll(&news, 1, PATIENCE_NS / 1000000) == 1);
    }
    send = post_send(&pair.a, out, LEN, 5);
    expect_ok(finish(&pair, recv), in, LEN, 3);
    sent(&pair, send);
    if (tells(&pair))
        check(count(pair.a.worker, PSC_COUNTER_tuple_placed) == 1);
    pair_close(&pair);
    free(in);
    free(out);
}

/* An eager message leaves at once in any case. */
CASE(claim_of_no_eager_message)
{
    char in[MIN];
    psc_request_t *recv;
    pair_t pair;

    options.eager_max = MIN;
    open_tuples(&pair);
    recv = expect(&pair, in, MIN, 5);
    if (tells(&pair))
        check(count(pair.b.worker, PSC_COUNTER_tuple_exposed) == 0);
    check(api->cancel(recv) == PSC_OK);
    api->request_free(recv);
    pair_close(&pair);
}

/* The peer closes while it cannot be told that a receive was cancelled, and the
 * program drops the connection. */
CASE(claim_dropped_with_its_connection)
{
    char *in = malloc(LEN);
    psc_request_t *recv;
    pair_t pair;
    psc_conn_t *conn;

    open_tuples(&pair);
    conn = pair.b.conn;
    recv = expect_told(&pair, in, LEN, 7);
    if (tells(&pair)) {
        lane_fills(conn->lanes[0]);
        check(api->cancel(recv) == PSC_OK);
        check(conn->lost.replay_due);
        psc_conn_close(pair.a.conn);
        while (psc_conn_state(conn) != PSC_CONN_CLOSED)
            api->progress(conn->worker, 0);
        psc_conn_destroy(conn);
        settle(&pair);
    } else {
        cancelled(&pair, recv);
    }
    api->request_free(recv);
    pair_close(&pair);
    free(in);
}

/* A message that does not fit into its receive is announced. */
CASE(claim_too_long)
{
    char *in = calloc(1, MIN), *out = malloc(LEN);
    psc_request_t *recv, *send;
    pair_t pair;

    open_tuples(&pair);
    fill(out, LEN, 2);
    recv = expect_told(&pair, in, MIN, 9);
    send = post_send(&pair.a, out, LEN, 9);
    until(&pair, done(recv));
    check(recv->result.status == PSC_ERR_TRUNCATED &&
          recv->result.nbytes == LEN && filled(in, MIN, 2));
    api->request_free(recv);
    sent(&pair, send);
    if (tells(&pair))
        check(count(pair.a.worker, PSC_COUNTER_rndv_rts) == 1);
    pair_close(&pair);
    free(in);
    free(out);
}

/* A side that claims no receives gets its messages to the other. */
CASE(claim_beside_a_side_without)
{
    char *in = calloc(1, LEN), *out = malloc(LEN);
    pair_t pair;

    open_tuples(&pair);
    psc_tuple_end(pair.a.conn);
    fill(out, LEN, 2);
    for (int i = 0; i < 2 * TABLE && (i == 0 || tells(&pair)); i++) {
        psc_request_t *recv, *send;

        recv = expect_told(&pair, in, LEN, i);
        send = post_send(&pair.a, out, LEN, i);
        expect_ok(finish(&pair, recv), in, LEN, 2);
        sent(&pair, send);
    }
    if (tells(&pair))
        check(count(pair.b.worker, PSC_COUNTER_tuple_exposed) == TABLE);
    pair_close(&pair);
    free(in);
    free(out);
}

/* ---- a claim that crosses with the end of its receive ---- */

/* The receive is cancelled at once, and its memory is the program's; the
 * message waits for the next receive. */
CASE(claim_meets_a_cancel)
{
    static const size_t lens[] = {MIN, LEN, PSC_CLAIM_MAX};

    for (size_t i = 0; i < 2 * sizeof lens / sizeof *lens; i++) {
        size_t len = lens[i / 2];
        char *in = calloc(2, len), *out = malloc(len);
        psc_request_t *first, *second = NULL, *send;
        psc_result_t result;
        pair_t pair;

        open_tuples(&pair);
        fill(out, len, 5);
        first = expect_told(&pair, in, len, 5);
        if (i % 2)
            second = expect_told(&pair, in + len, len, PSC_ANY_TAG);
        send = post_send(&pair.a, out, len, 5);
        progress_of_a(&pair);
        if (tells(&pair)) {
            check(api->cancel(first) == PSC_OK);
            check(finish(&pair, first).status == PSC_ERR_CANCELLED);
            if (!second)
                settle(&pair);
            check(count(pair.a.worker, PSC_COUNTER_tuple_placed) == 1);
            check(count(pair.b.worker, PSC_COUNTER_tuple_taken) == 0);
        } else {
            expect_ok(finish(&pair, first), in, len, 5);
            sent(&pair, send);
            memset(in, 0, len);
            send = post_send(&pair.a, out, len, 5);
        }
        if (!second)
            second = post_recv(&pair.b, pair.b.conn, in + len, len, 5, &result);
        expect_ok(second ? finish(&pair, second) : result, in + len, len, 5);
        sent(&pair, send);
        for (size_t at = 0; at < len; at++)
            check(in[at] == 0);
        if (tells(&pair))
            check_credit(&pair);
        pair_close(&pair);
        free(in);
        free(out);
    }
}

/* A message comes back, and takes the receive whose claim is under way. */
CASE(claim_meets_a_message_that_comes_back)
{
    char *in = calloc(2, LEN), *out = malloc(LEN), small[100];
    psc_recv_args_t probe = {
        .context = CONTEXT, .tag = 5, .flags = PSC_FLAG_NO_BUFFER};
    psc_request_t *held = NULL, *recvs[2], *send;
    psc_result_t result;
    pair_t pair;

    open_tuples(&pair);
    fill(out, LEN, 6);
    fill(small, sizeof small, 7);
    check(!post_send(&pair.a, small, sizeof small, 5));
    until(&pair, count(pair.b.worker, PSC_COUNTER_unexpected) > 0);
    probe.source = pair.b.conn;
    api->recv(pair.b.worker, &probe, &result, &held);
    check(held && psc_request_state(held) == PSC_REQUEST_MATCHED);
    recvs[0] = expect(&pair, in, LEN, 5);
    recvs[1] = expect_told(&pair, in + LEN, LEN, 5);
    send = post_send(&pair.a, out, LEN, 5);
    if (tells(&pair))
        progress_of_a(&pair);
    check(api->cancel(held) == PSC_OK);
    api->request_free(held);
    if (tells(&pair)) {
        expect_ok(finish(&pair, recvs[0]), in, sizeof small, 7);
        expect_ok(finish(&pair, recvs[1]), in + LEN, LEN, 6);
        check(count(pair.a.worker, PSC_COUNTER_tuple_placed) == 1);
    } else {
        finish(&pair, recvs[0]);
        finish(&pair, recvs[1]);
    }
    sent(&pair, send);
    pair_close(&pair);
    free(in);
    free(out);
}

static psc_stage_t stage_of(const psc_request_t *request)
{
    return ((const psc_req_t *)request)->stage;
}

/* The receive is given up while its message arrives. */
CASE(claim_given_up)
{
    char *in = calloc(2, PSC_CLAIM_MAX), *out = malloc(PSC_CLAIM_MAX);
    psc_request_t *recv, *send;
    pair_t pair;

    open_tuples(&pair);
    fill(out, PSC_CLAIM_MAX, 4);
    recv = expect_told(&pair, in, PSC_CLAIM_MAX, 4);
    send = post_send(&pair.a, out, PSC_CLAIM_MAX, 4);
    if (tells(&pair)) {
        until(&pair, stage_of(recv) == PSC_STAGE_CLAIMED);
        check(api->recv_give_up(recv) == PSC_INPROGRESS);
        check(finish(&pair, recv).status == PSC_ERR_CANCELLED);
        expect_next(&pair, in + PSC_CLAIM_MAX, PSC_CLAIM_MAX, 4);
    } else {
        finish(&pair, recv);
    }
    sent(&pair, send);
    pair_close(&pair);
    free(in);
    free(out);
}

/* Nothing is written into memory that its owner has back. */
CASE(claim_ends)
{
    for (int moment = 0; moment < 8; moment++) {
        size_t len = PSC_CLAIM_MAX;
        char *in = calloc(1, len), *out = malloc(len);
        psc_request_t *recv, *send;
        pair_t pair;

        open_tuples(&pair);
        fill(out, len, 8);
        recv = expect_told(&pair, in, len, 5);
        send = post_send(&pair.a, out, len, 5);
        for (int i = 0; i < moment; i++)
            pair_progress(&pair);
        psc_conn_fail(moment % 2 ? pair.b.conn : pair.a.conn,
                      PSC_ERR_PEER_LOST);
        expect_ends(&pair, recv, send, in, out, len);
        pair_close(&pair);
        free(in);
        free(out);
    }
}

/* Entries return: each receive is withdrawn, and the last one is claimed. */
CASE(claim_after_many_withdrawals)
{
    enum { N = 3 * TABLE };
    char *in = calloc(1, MIN), *out = malloc(MIN);
    psc_request_t *recv, *send;
    pair_t pair;

    open_tuples(&pair);
    fill(out, MIN, 3);
    for (int i = 0; i < N; i++) { /* tags, so that none is pausing */
        recv = expect(&pair, in, MIN, i);
        if (i % 2) {
            cancelled(&pair, recv);
        } else {
            check(!post_send(&pair.a, out, 100, i));
        }
        until(&pair, done(recv));
        api->request_free(recv);
        settle(&pair);
    }
    recv = expect_told(&pair, in, MIN, 1000);
    send = post_send(&pair.a, out, MIN, 1000);
    expect_ok(finish(&pair, recv), in, MIN, 3);
    sent(&pair, send);
    if (tells(&pair)) {
        check(count(pair.b.worker, PSC_COUNTER_tuple_exposed) == N + 1);
        check(count(pair.b.worker, PSC_COUNTER_tuple_taken) == 1);
    }
    pair_close(&pair);
    free(in);
    free(out);
}

/* All that the peer may send as claims is bounded. */
CASE(claims_are_bounded)
{
    enum { N = 2 * PSC_CLAIMS_MAX / PSC_CLAIM_MAX };
    char *in = malloc(PSC_CLAIM_MAX);
    psc_request_t *recvs[N];
    pair_t pair;

    open_tuples(&pair);
    for (int i = 0; i < N; i++)
        recvs[i] = expect(&pair, in, PSC_CLAIM_MAX, i);
    if (tells(&pair))
        check(count(pair.b.worker, PSC_COUNTER_tuple_exposed) == N / 2);
    settle(&pair);
    for (int i = 0; i < N; i++) {
        cancelled(&pair, recvs[i]);
        api->request_free(recvs[i]);
    }
    pair_close(&pair);
    free(in);
}
