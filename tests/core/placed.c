/* Long messages that are put into receives of which the sender was told by a
 * message (tuple.h, PSC_CAP_PUT_AM). A transport without it sends the same
 * messages otherwise, and the results are checked there, too. */
#include "placed.h"
#include "pscompy/proto/tuple.h"

CASE(placed_expected_message)
{
    static const size_t lens[] = {MIN, 65536, LEN, 1u << 20};

    for (size_t i = 0; i < 2 * sizeof lens / sizeof *lens; i++) {
        size_t len = lens[i / 2];
        char *in = calloc(1, len), *out = malloc(len);
        psc_request_t *recv, *send;
        pair_t pair;

        open_tuples(&pair);
        fill(out, len, 1);
        recv = expect_told(&pair, in, len, i % 2 ? PSC_ANY_TAG : 7);
        send = post_send(&pair.a, out, len, 7);
        if (places(&pair)) {
            check(filled(in, len, 1)); /* before b makes progress */
            check(count(pair.a.worker, PSC_COUNTER_tuple_placed) == 1);
            check(count(pair.a.worker, PSC_COUNTER_rndv_rts) == 0);
        }
        expect_ok(finish(&pair, recv), in, len, 1);
        sent(&pair, send);
        if (places(&pair)) {
            check(count(pair.b.worker, PSC_COUNTER_tuple_taken) == 1);
            check(count(pair.a.worker, PSC_COUNTER_rndv_am) == 0);
            check(count(pair.a.worker, PSC_COUNTER_rndv_fin) == 0);
        }
        pair_close(&pair);
        free(in);
        free(out);
    }
}

/* The peer is asked, and the message that was under way waits for the next
 * receive. */
CASE(placed_meets_a_cancel)
{
    for (int way = 0; way < 4; way++) {
        psc_status_t (*withdraw)(psc_request_t *) =
            way & 1 ? api->recv_give_up : api->cancel;
        char *in = calloc(2, LEN), *out = malloc(LEN);
        psc_request_t *recv, *send = NULL;
        pair_t pair;

        open_tuples(&pair);
        fill(out, LEN, 5);
        recv = expect_told(&pair, in, LEN, 5);
        if (way & 2)
            send = post_send(&pair.a, out, LEN, 5);
        if (places(&pair)) {
            for (int i = 0; i < 2; i++)
                check(withdraw(recv) == PSC_INPROGRESS && !done(recv));
            check(finish(&pair, recv).status == PSC_ERR_CANCELLED);
        }
        if (!(way & 2))
            send = post_send(&pair.a, out, LEN, 5);
        if (places(&pair))
            expect_next(&pair, in + LEN, LEN, 5);
        else
            expect_ok(finish(&pair, recv), in, LEN, 5);
        sent(&pair, send);
        pair_close(&pair);
        free(in);
        free(out);
    }
}

/* A small message comes back while two receives are advert, before or after the
 * peer has put a message into the first. */
static void placed_comes_back(pair_t *pair, bool before, bool cancels)
{
    char *in = calloc(2, LEN), *out = malloc(2 * LEN), small[100];
    psc_request_t *held, *recvs[2], *sends[2];

    fill(out, LEN, 6);
    fill(out + LEN, LEN, 8);
    fill(small, sizeof small, 7);
    check(!post_send(&pair->a, small, sizeof small, 5));
    held = probe_for(pair, 5);
    recvs[0] = expect(pair, in, LEN, 5);
    recvs[1] = expect_told(pair, in + LEN, LEN, 5);
    if (!before)
        sends[0] = post_send(&pair->a, out, LEN, 5);
    check(api->cancel(held) == PSC_OK);
    api->request_free(held);
    if (cancels)
        cancelled(pair, recvs[0]);
    for (int i = !before; i < 2; i++)
        sends[i] = post_send(&pair->a, out + i * LEN, LEN, 5);
    expect_ok(finish(pair, recvs[cancels]), in + cancels * LEN, sizeof small,
              7);
    if (cancels)
        expect_next(pair, in, LEN, 6);
    else
        expect_ok(finish(pair, recvs[1]), in + LEN, LEN, 6);
    expect_next(pair, in, LEN, 8);
    if (cancels)
        api->request_free(recvs[0]);
    for (int i = 0; i < 2; i++)
        sent(pair, sends[i]);
    free(in);
    free(out);
}

/* The order is that in which the messages were sent. */
CASE(placed_meets_a_message_that_comes_back)
{
    for (int way = 0; way < 4; way++) {
        pair_t pair;

        open_tuples(&pair);
        if (places(&pair))
            placed_comes_back(&pair, way & 1, way & 2);
        pair_close(&pair);
    }
}

/* A side that claims no receives gets its messages to the other, and answers
 * when the other wants a receive back. */
CASE(placed_beside_a_side_without)
{
    char *in = calloc(1, LEN), *out = malloc(LEN);
    psc_request_t *recv, *send;
    pair_t pair;

    open_tuples(&pair);
    psc_tuple.conn_destroyed(pair.a.conn);
    fill(out, LEN, 2);
    for (int i = 0; i < 2 * TABLE && (i == 0 || places(&pair)); i++) {
        recv = expect_told(&pair, in, LEN, i);
        send = post_send(&pair.a, out, LEN, i);
        expect_ok(finish(&pair, recv), in, LEN, 2);
        sent(&pair, send);
    }
    recv = expect_told(&pair, in, LEN, 1000);
    if (places(&pair)) {
        check(count(pair.b.worker, PSC_COUNTER_tuple_exposed) > TABLE);
        check(count(pair.a.worker, PSC_COUNTER_tuple_placed) == 0);
    }
    cancelled(&pair, recv);
    api->request_free(recv);
    pair_close(&pair);
    free(in);
    free(out);
}

/* Nothing is written into memory that its owner has back. */
CASE(placed_ends)
{
    for (int moment = 0; moment < 16; moment++) {
        char *in = calloc(1, LEN), *out = malloc(LEN);
        psc_request_t *recv, *send = NULL;
        pair_t pair;

        open_tuples(&pair);
        recv = expect_told(&pair, in, LEN, 5);
        fill(out, LEN, 8);
        if (moment & 8)
            send = post_send(&pair.a, out, LEN, 5);
        if (moment & 4 && places(&pair))
            check(api->cancel(recv) == PSC_INPROGRESS);
        for (int i = 0; i < (moment & 2); i++)
            pair_progress(&pair);
        psc_conn_fail(moment % 2 ? pair.b.conn : pair.a.conn,
                      PSC_ERR_PEER_LOST);
        expect_ends(&pair, recv, send, in, out, LEN);
        pair_close(&pair);
        free(in);
        free(out);
    }
}

/* ---- messages that are expected ---- */

/* Credit is neither lost by placed messages nor gained. */
static void check_credit(pair_t *pair)
{
    const psc_flow_t *here = &pair->a.conn->flow, *there = &pair->b.conn->flow;

    settle(pair);
    check(there->consumed == there->got);
    check(psc_flow_has(here, PSC_CREDIT_INITIAL) &&
          !psc_flow_has(here, PSC_CREDIT_INITIAL + 1));
}

/* Returns false if the transport moves long messages otherwise. */
static bool expected_message(size_t len, int32_t tag, uint64_t placed)
{
    char *in = calloc(1, len), *out = malloc(len);
    psc_request_t *recv, *send;
    pair_t pair;
    bool told;

    open_tuples(&pair);
    told = places(&pair);
    fill(out, len, 1);
    recv = expect_told(&pair, in, len, tag);
    send = post_send(&pair.a, out, len, 7);
    expect_ok(finish(&pair, recv), in, len, 1);
    sent(&pair, send);
    if (told) {
        check(count(pair.a.worker, PSC_COUNTER_tuple_placed) == placed);
        check(count(pair.b.worker, PSC_COUNTER_tuple_taken) == placed);
        check(count(pair.a.worker, PSC_COUNTER_rndv_rts) == 1 - placed);
        check_credit(&pair);
    }
    pair_close(&pair);
    free(in);
    free(out);
    return told;
}

/* No RTS and no RTR for messages that the fabric can put. */
CASE(placed_an_expected_message)
{
    static const size_t lens[] = {MIN, 65536, LEN};

    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        if (!expected_message(lens[i], 7, 1))
            return;
        expected_message(lens[i], PSC_ANY_TAG, 1);
    }
    expected_message(PSC_PLACE_MAX + 1, 7, 0);
}

/* A program that only sends has not read what it was told. */
CASE(placed_reads_first)
{
    char *in = calloc(1, LEN), *out = malloc(LEN);
    psc_request_t *recv, *send;
    pair_t pair;

    open_tuples(&pair);
    fill(out, LEN, 3);
    recv = expect(&pair, in, LEN, 5);
    send = post_send(&pair.a, out, LEN, 5);
    expect_ok(finish(&pair, recv), in, LEN, 3);
    sent(&pair, send);
    if (places(&pair))
        check(count(pair.a.worker, PSC_COUNTER_tuple_placed) == 1);
    pair_close(&pair);
    free(in);
    free(out);
}

/* An eager message leaves at once in any case. */
CASE(placed_no_eager_message)
{
    char in[MIN];
    psc_request_t *recv;
    pair_t pair;

    options.eager_max = MIN;
    open_tuples(&pair);
    recv = expect(&pair, in, MIN, 5);
    if (places(&pair))
        check(count(pair.b.worker, PSC_COUNTER_tuple_exposed) == 0);
    check(api->cancel(recv) == PSC_OK);
    api->request_free(recv);
    pair_close(&pair);
}

/* A message that does not fit into its receive is announced. */
CASE(placed_too_long)
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
    if (places(&pair))
        check(count(pair.a.worker, PSC_COUNTER_rndv_rts) == 1);
    pair_close(&pair);
    free(in);
    free(out);
}
