/* Receives that the sender sees and takes, through match.c and a real
 * transport. A transport without PSC_CAP_EXPOSE sends the same messages
 * otherwise, so the results are checked there, too. */
#include "tuples.h"

static void count_is(psc_worker_t *worker, psc_counter_t counter, uint64_t n)
{
    if (count(worker, counter) != n)
        fprintf(stderr, "counter %d: %llu\n", (int)counter,
                (unsigned long long)count(worker, counter));
    check(count(worker, counter) == n);
}

/* The message of `len` bytes takes one record in one direction, and none in the
 * other. */
static void count_one(pair_t *pair)
{
    count_is(pair->a.worker, PSC_COUNTER_tuple_placed, 1);
    count_is(pair->b.worker, PSC_COUNTER_tuple_taken, 1);
    count_is(pair->a.worker, PSC_COUNTER_rndv_rts, 0);
    count_is(pair->a.worker, PSC_COUNTER_eager_bcopy, 0);
    count_is(pair->b.worker, PSC_COUNTER_rndv_fin, 0);
}

CASE(tuple_receiver_away)
{
    static const size_t lens[] = {MIN, 65536, LEN, 4 << 20};

    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        size_t len = lens[i];
        char *in = calloc(1, len), *out = malloc(len);
        psc_request_t *recv, *send;
        pair_t pair;

        open_tuples(&pair);
        fill(out, len, 1);
        recv = expect(&pair, in, len, 7);
        send = post_send(&pair.a, out, len, 7);
        if (advertises(&pair)) {
            int64_t end = psc_clock_now() + PATIENCE_NS;

            while (!done(send)) {
                check(psc_clock_now() < end);
                api->progress(pair.a.worker, 0); /* b is away */
            }
            check(filled(in, len, 1));
        }
        expect_ok(finish(&pair, recv), in, len, 1);
        sent(&pair, send);
        if (advertises(&pair))
            count_one(&pair);
        pair_close(&pair);
        free(in);
        free(out);
    }
}

CASE(tuple_sender_away)
{
    char *in = calloc(1, LEN), *out = malloc(LEN);
    psc_request_t *recv, *send;
    pair_t pair;

    open_tuples(&pair);
    fill(out, LEN, 2);
    recv = expect(&pair, in, LEN, PSC_ANY_TAG);
    send = post_send(&pair.a, out, LEN, 9);
    if (advertises(&pair)) {
        int64_t end = psc_clock_now() + PATIENCE_NS;

        while (!done(recv)) {
            check(psc_clock_now() < end);
            api->progress(pair.b.worker, 0); /* a is away */
        }
        check(recv->result.tag == 9);
    }
    expect_ok(finish(&pair, recv), in, LEN, 2);
    sent(&pair, send);
    if (advertises(&pair))
        count_one(&pair);
    /* too long for its receive */
    recv = expect(&pair, in, MIN, 9);
    send = post_send(&pair.a, out, LEN, 9);
    until(&pair, done(recv));
    check(recv->result.status == PSC_ERR_TRUNCATED &&
          recv->result.nbytes == LEN && filled(in, MIN, 2));
    api->request_free(recv);
    sent(&pair, send);
    pair_close(&pair);
    free(in);
    free(out);
}

/* Messages that are sent otherwise stand before those that take a receive. */
CASE(tuple_order)
{
    char *in = calloc(3, LEN), *out = malloc(LEN), small[100];
    psc_request_t *recvs[3], *sends[2];
    pair_t pair;

    open_tuples(&pair);
    fill(out, LEN, 3);
    fill(small, sizeof small, 4);
    for (int i = 0; i < 3; i++)
        recvs[i] = expect(&pair, in + i * LEN, LEN, i == 1 ? PSC_ANY_TAG : 5);
    check(!post_send(&pair.a, small, sizeof small, 5));
    sends[0] = post_send(&pair.a, out, LEN, 5);
    sends[1] = post_send(&pair.a, out, LEN, 5);
    expect_ok(finish(&pair, recvs[0]), in, sizeof small, 4);
    expect_ok(finish(&pair, recvs[1]), in + LEN, LEN, 3);
    expect_ok(finish(&pair, recvs[2]), in + 2 * LEN, LEN, 3);
    for (int i = 0; i < 2; i++)
        sent(&pair, sends[i]);
    if (advertises(&pair))
        check(count(pair.a.worker, PSC_COUNTER_tuple_unseen) > 0);
    pair_close(&pair);
    free(in);
    free(out);
}

CASE(tuple_cancel)
{
    char *in = calloc(2, LEN), *out = malloc(LEN);
    psc_request_t *first, *second, *send;
    pair_t pair;

    open_tuples(&pair);
    fill(out, LEN, 5);
    first = expect(&pair, in, LEN, 5);
    second = expect(&pair, in + LEN, LEN, 5);
    cancelled(&pair, first);
    check(finish(&pair, first).status == PSC_ERR_CANCELLED);
    send = post_send(&pair.a, out, LEN, 5);
    if (advertises(&pair)) /* the sender has taken it */
        check(api->cancel(second) == PSC_ERR_INVALID);
    expect_ok(finish(&pair, second), in + LEN, LEN, 5);
    sent(&pair, send);
    check(in[1] == 0);
    pair_close(&pair);
    free(in);
    free(out);
}

/* A message that comes back finds the receive that the peer has not taken. */
CASE(tuple_comes_back)
{
    for (int taken = 0; taken < 2; taken++) {
        char *in = calloc(2, LEN), *out = malloc(LEN), small[100];
        psc_request_t *held, *recvs[2], *send;
        pair_t pair;

        open_tuples(&pair);
        fill(out, LEN, 6);
        fill(small, sizeof small, 7);
        check(!post_send(&pair.a, small, sizeof small, 5));
        held = probe_for(&pair, 5);
        recvs[0] = expect(&pair, in, LEN, 5);
        recvs[1] = expect(&pair, in + LEN, LEN, 5);
        send = taken ? post_send(&pair.a, out, LEN, 5) : NULL;
        if (!advertises(&pair))
            settle(&pair);
        check(api->cancel(held) == PSC_OK);
        api->request_free(held);
        if (!advertises(&pair))
            settle(&pair); /* a is told */
        if (!taken)
            send = post_send(&pair.a, out, LEN, 5);
        expect_ok(finish(&pair, recvs[taken]), in + taken * LEN, sizeof small,
                  7);
        expect_ok(finish(&pair, recvs[!taken]), in + !taken * LEN, LEN, 6);
        sent(&pair, send);
        pair_close(&pair);
        free(in);
        free(out);
    }
}

/* Nothing is written into memory that its owner has back. */
CASE(tuple_ends)
{
    for (int moment = 0; moment < 8; moment++) {
        size_t len = 8 << 20;
        char *in = calloc(1, len), *out = malloc(len);
        psc_request_t *recv, *send;
        pair_t pair;

        open_tuples(&pair);
        fill(out, len, 8);
        recv = expect(&pair, in, len, 5);
        send = post_send(&pair.a, out, len, 5);
        for (int i = 0; i < moment; i++)
            api->progress(pair.a.worker, 0);
        for (int i = 0; i < moment / 2; i++)
            api->progress(pair.b.worker, 0);
        if (moment % 2)
            psc_conn_fail(pair.b.conn, PSC_ERR_PEER_LOST);
        else
            psc_conn_fail(pair.a.conn, PSC_ERR_PEER_LOST);
        until(&pair, done(recv) && done(send));
        check(recv->result.status < 0 || filled(in, len, 8));
        memset(in, 1, len); /* both are the program's again */
        memset(out, 2, len);
        settle(&pair);
        for (size_t i = 0; i < len; i++)
            check(in[i] == 1);
        api->request_free(recv);
        api->request_free(send);
        pair_close(&pair);
        free(in);
        free(out);
    }
}

/* More receives than the table has entries: all are filled in order. */
CASE(tuple_full_table)
{
    enum { N = 3 * TABLE };
    char *in = calloc(N, MIN), *out = malloc(MIN);
    psc_request_t *recvs[N];
    pair_t pair;

    open_tuples(&pair);
    for (int i = 0; i < N; i++)
        recvs[i] = expect(&pair, in + i * MIN, MIN, 5);
    for (int i = 0; i < N; i++) {
        psc_request_t *send;

        fill(out, MIN, (unsigned)i);
        send = post_send(&pair.a, out, MIN, 5);
        sent(&pair, send);
        settle(&pair);
    }
    for (int i = 0; i < N; i++)
        expect_ok(finish(&pair, recvs[i]), in + i * MIN, MIN, (unsigned)i);
    if (advertises(&pair))
        count_is(pair.b.worker, PSC_COUNTER_tuple_taken, N);
    pair_close(&pair);
    free(in);
    free(out);
}

/* A receive from any source holds back the receive behind it, while one of
 * another tag is advert: after some looks in vain the sender looks less often.
 * Each message is counted once, and a receive that is advert at last is
 * taken. */
CASE(tuple_wildcards)
{
    enum { N = 60 };
    char *in = calloc(3, MIN), *out = malloc(MIN);
    psc_request_t *other, *recv;
    pair_t pair;
    uint64_t placed = 0, ways;

    open_tuples(&pair);
    fill(out, MIN, 6);
    other = expect(&pair, in, MIN, 6);
    for (int i = 0; i < N; i++) {
        psc_result_t result;
        psc_request_t *any =
            post_recv(&pair.b, NULL, in + MIN, MIN, 5, &result);
        psc_request_t *sends[2];

        recv = expect(&pair, in + 2 * MIN, MIN, 5);
        for (int n = 0; n < 2; n++)
            sends[n] = post_send(&pair.a, out, MIN, 5);
        expect_ok(finish(&pair, any), in + MIN, MIN, 6);
        expect_ok(finish(&pair, recv), in + 2 * MIN, MIN, 6);
        for (int n = 0; n < 2; n++)
            sent(&pair, sends[n]);
    }
    if (advertises(&pair))
        check(count(pair.a.worker, PSC_COUNTER_tuple_skipped) > N);
    for (int i = 0; i < N; i++) {
        psc_request_t *send;

        recv = expect(&pair, in + 2 * MIN, MIN, 5);
        send = post_send(&pair.a, out, MIN, 5);
        expect_ok(finish(&pair, recv), in + 2 * MIN, MIN, 6);
        sent(&pair, send);
    }
    placed = count(pair.a.worker, PSC_COUNTER_tuple_placed);
    ways = placed + count(pair.a.worker, PSC_COUNTER_tuple_none) +
           count(pair.a.worker, PSC_COUNTER_tuple_unseen) +
           count(pair.a.worker, PSC_COUNTER_tuple_skipped);
    if (advertises(&pair))
        check(placed >= N - 32 && ways == 3 * N);
    cancelled(&pair, other);
    api->request_free(other);
    pair_close(&pair);
    free(in);
    free(out);
}

/* Receives for which only short messages arrive are not advert for long, until
 * a long message arrives. */
CASE(tuple_short_messages)
{
    enum { N = 200 };
    char *in = calloc(1, MIN), *out = malloc(MIN), small[8];
    uint64_t exposed;
    pair_t pair;

    open_tuples(&pair);
    fill(out, MIN, 6);
    fill(small, sizeof small, 7);
    for (int i = 0; i < N; i++) {
        psc_request_t *recv = expect(&pair, in, MIN, i % 2 ? 5 : PSC_ANY_TAG);

        check(!post_send(&pair.a, small, sizeof small, 5));
        expect_ok(finish(&pair, recv), in, sizeof small, 7);
    }
    exposed = count(pair.b.worker, PSC_COUNTER_tuple_exposed);
    if (advertises(&pair)) {
        check(exposed < N / 4);
        check(exposed + count(pair.b.worker, PSC_COUNTER_tuple_hidden) == N);
    }
    for (int i = 0; i < 3; i++) {
        psc_request_t *recv = expect(&pair, in, MIN, 5);
        psc_request_t *send = post_send(&pair.a, out, MIN, 5);

        expect_ok(finish(&pair, recv), in, MIN, 6);
        sent(&pair, send);
    }
    if (advertises(&pair))
        check(count(pair.b.worker, PSC_COUNTER_tuple_taken) >= 2);
    pair_close(&pair);
    free(in);
    free(out);
}

static void threshold_is(psc_conn_t *conn, uint64_t eager_max)
{
    psc_proto_params_t params = conn->params;

    params.eager_max = eager_max;
    params.zcopy_min = UINT64_MAX;
    psc_conn_adapt(conn, &params);
}

/* A message of tuple_min bytes takes a receive, and a shorter one does not,
 * whatever the threshold of eager messages is. */
CASE(tuple_threshold)
{
    char *in = calloc(1, MIN), *out = malloc(MIN);
    uint64_t placed = 0;
    pair_t pair;

    open_tuples(&pair);
    fill(out, MIN, 9);
    for (size_t most = 2 * MIN; most >= MIN / 4; most /= 2) {
        threshold_is(pair.a.conn, most);
        threshold_is(pair.b.conn, most);
        for (size_t len = MIN - 1; len <= MIN; len++) {
            psc_request_t *recv = expect(&pair, in, len, 5);
            psc_request_t *send = post_send(&pair.a, out, len, 5);

            expect_ok(finish(&pair, recv), in, len, 9);
            sent(&pair, send);
            if (advertises(&pair))
                placed += len == MIN;
            if (pair.b.conn->tuple_am) /* a may not have been told yet */
                continue;
            count_is(pair.a.worker, PSC_COUNTER_tuple_placed, placed);
            count_is(pair.b.worker, PSC_COUNTER_tuple_exposed, placed);
        }
    }
    pair_close(&pair);
    free(in);
    free(out);
}
