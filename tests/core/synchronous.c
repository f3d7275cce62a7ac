/* Synchronous sends (PSC_FLAG_SYNC), which are done only after a receive has
 * matched their message. That a send is not done is checked when everything has
 * arrived that either side had sent by then, so that an answer to the message
 * would have arrived, too. */
#include "placed.h"

static const size_t lengths[] = {0, 1, 8, 1000, 8192, 65536, 3 << 20};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static psc_request_t *post_flagged(side_t *side, const psc_iov_t *iov,
                                   size_t n_iov, int32_t tag, uint32_t flags)
{
    psc_send_args_t args = {.context = CONTEXT,
                            .tag = tag,
                            .iov = iov,
                            .n_iov = n_iov,
                            .flags = PSC_FLAG_SYNC | flags};
    psc_request_t *request = NULL;

    check(api->send(side->conn, &args, &request) == PSC_INPROGRESS);
    return request;
}

static psc_request_t *post_sync(side_t *side, const void *buffer, size_t len,
                                int32_t tag)
{
    psc_iov_t iov = {(void *)buffer, len};

    return post_flagged(side, &iov, 1, tag, 0);
}

/* One empty message, with a tag of its own. */
static void pass_on(pair_t *pair, side_t *from, side_t *to)
{
    psc_result_t result;
    psc_request_t *send = post_send(from, NULL, 0, 999);
    psc_request_t *recv = post_recv(to, to->conn, NULL, 0, 999, &result);

    check((recv ? finish(pair, recv) : result).status == PSC_OK);
    sent(pair, send);
}

/* All that a has sent arrives at b, then all that b has sent at a. */
static void there_and_back(pair_t *pair)
{
    pass_on(pair, &pair->a, &pair->b);
    pass_on(pair, &pair->b, &pair->a);
}

static void receive(pair_t *pair, void *in, size_t len, int32_t tag,
                    unsigned seed)
{
    psc_result_t result;
    psc_request_t *recv =
        post_recv(&pair->b, pair->b.conn, in, len, tag, &result);

    expect_ok(recv ? finish(pair, recv) : result, in, len, seed);
}

/* ---- one message ---- */

static void late_receive(pair_t *pair, size_t len, int32_t tag)
{
    char *in = calloc(1, len + 1), *out = malloc(len + 1);
    uint64_t announced = count(pair->a.worker, PSC_COUNTER_rndv_rts);
    psc_request_t *send;

    fill(out, len, (unsigned)len);
    send = post_sync(&pair->a, out, len, 7);
    there_and_back(pair);
    check(!done(send));
    receive(pair, in, len, tag, (unsigned)len);
    sent(pair, send);
    check(count(pair->a.worker, PSC_COUNTER_rndv_rts) == announced + 1);
    free(in);
    free(out);
}

static void early_receive(pair_t *pair, size_t len, int32_t tag)
{
    char *in = calloc(1, len + 1), *out = malloc(len + 1);
    psc_request_t *recv = expect_told(pair, in, len, tag), *send;

    fill(out, len, (unsigned)len);
    send = post_sync(&pair->a, out, len, 7);
    expect_ok(finish(pair, recv), in, len, (unsigned)len);
    sent(pair, send);
    free(in);
    free(out);
}

static void all_lengths(psc_rndv_scheme_t scheme)
{
    pair_t pair;

    options.scheme = scheme;
    open_tuples(&pair);
    for (int i = 0; i < 2 * LENGTHS; i++) {
        int32_t tag = i % 2 ? PSC_ANY_TAG : 7;

        late_receive(&pair, lengths[i / 2], tag);
        early_receive(&pair, lengths[i / 2], tag);
    }
    check(count(pair.a.worker, PSC_COUNTER_rndv_rts) == 4 * LENGTHS);
    check(count(pair.a.worker, PSC_COUNTER_credits_exhausted) == 0);
    pair_close(&pair);
}

CASE(synchronous_auto)
{
    all_lengths(PSC_RNDV_AUTO);
}

CASE(synchronous_put)
{
    all_lengths(PSC_RNDV_PUT);
}

CASE(synchronous_get)
{
    all_lengths(PSC_RNDV_GET);
}

CASE(synchronous_am)
{
    all_lengths(PSC_RNDV_AM);
}

CASE(synchronous_pieces)
{
    char in[300], out[300];
    psc_iov_t pieces[] = {{out, 100}, {out + 100, 0}, {out + 100, 200}};
    psc_dim_t dim = {.n = 100, .stride = 3};
    psc_layout_t layout = {.base = in, .run = 1, .n_dims = 1, .dims = &dim};
    psc_iov_t strided[2];
    psc_send_args_t args = {.context = CONTEXT,
                            .tag = 8,
                            .iov = strided,
                            .n_iov = 2,
                            .flags = PSC_FLAG_SYNC};
    psc_request_t *send;
    pair_t pair;

    pair_open(&pair);
    fill(out, sizeof out, 3);
    send = post_flagged(&pair.a, pieces, 3, 7, 0);
    there_and_back(&pair);
    check(!done(send));
    receive(&pair, in, sizeof in, 7, 3);
    sent(&pair, send);
    fill(out, 100, 4);
    for (int i = 0; i < 100; i++)
        in[3 * i] = out[i];
    psc_layout_pieces(&layout, strided);
    check(api->send_strided(pair.a.conn, &args, &send) == PSC_INPROGRESS);
    there_and_back(&pair);
    check(!done(send));
    receive(&pair, out, 100, 8, 4);
    sent(&pair, send);
    pair_close(&pair);
}

/* A pool's block that is lent: the send is done when the view is released. */
CASE(synchronous_lent)
{
    static char in[LEN];
    psc_block_t *block = NULL;
    psc_request_t *send;
    psc_iov_t iov;
    pair_t pair;

    options.pool_max = 64 << 20;
    pair_open(&pair);
    check(api->block_alloc(pair.a.worker, LEN, 0, &block) == PSC_OK);
    iov = (psc_iov_t){block->base, LEN};
    fill(block->base, LEN, 4);
    send = post_flagged(&pair.a, &iov, 1, 7, PSC_FLAG_LEND);
    there_and_back(&pair);
    check(!done(send));
    receive(&pair, in, LEN, 7, 4);
    sent(&pair, send);
    /* to lend is no match: the peer closes without a receive */
    send = post_flagged(&pair.a, &iov, 1, 7, PSC_FLAG_LEND);
    there_and_back(&pair);
    psc_conn_fail(pair.a.conn, PSC_ERR_PEER_LOST);
    check(finish(&pair, send).status == PSC_ERR_PEER_LOST);
    api->block_free(block);
    pair_close(&pair);
}

/* ---- among other messages ---- */

/* Messages with one tag keep their order, whatever their kind and length. */
static void in_order(bool posted)
{
    enum { MANY = 4 * LENGTHS };
    char *in[MANY], *out[MANY];
    psc_request_t *recvs[MANY], *sends[MANY];
    pair_t pair;

    open_tuples(&pair);
    for (unsigned i = 0; i < MANY; i++) {
        in[i] = calloc(1, lengths[LENGTHS - 1]);
        out[i] = malloc(lengths[LENGTHS - 1]);
        if (posted)
            recvs[i] = expect(&pair, in[i], lengths[LENGTHS - 1], 5);
    }
    for (unsigned i = 0; i < MANY; i++) {
        size_t len = lengths[i * 5 % LENGTHS];

        fill(out[i], len, i);
        sends[i] = i % 3 ? post_send(&pair.a, out[i], len, 5)
                         : post_sync(&pair.a, out[i], len, 5);
    }
    for (unsigned i = 0; i < MANY; i++) {
        size_t len = lengths[i * 5 % LENGTHS];

        if (posted)
            expect_ok(finish(&pair, recvs[i]), in[i], len, i);
        else
            receive(&pair, in[i], len, 5, i);
        sent(&pair, sends[i]);
        free(in[i]);
        free(out[i]);
    }
    pair_close(&pair);
}

CASE(synchronous_in_order)
{
    in_order(false);
    in_order(true);
}

/* To probe a message is no match; a receive without buffer that has matched it
 * and is cancelled puts it back. */
CASE(synchronous_and_probed)
{
    psc_recv_args_t args = {.context = CONTEXT, .tag = 7};
    psc_request_t *send, *probe = NULL;
    psc_result_t result;
    char in[8], out[8];
    pair_t pair;

    pair_open(&pair);
    args.source = pair.b.conn;
    fill(out, sizeof out, 1);
    send = post_sync(&pair.a, out, sizeof out, 7);
    there_and_back(&pair);
    check(api->iprobe(pair.b.worker, &args, &result) == PSC_OK);
    check(api->probe(pair.b.worker, &args, &result, &probe) == PSC_OK);
    probe = probe_for(&pair, 7);
    check(api->cancel(probe) == PSC_OK);
    api->request_free(probe);
    there_and_back(&pair);
    check(!done(send));
    receive(&pair, in, sizeof in, 7, 1);
    sent(&pair, send);
    pair_close(&pair);
}

/* ---- receives that are withdrawn ---- */

/* The sender may know a receive that its owner has withdrawn: a message that is
 * put there has not matched. */
CASE(synchronous_meets_a_cancel)
{
    for (int way = 0; way < 2; way++) {
        char *in = calloc(1, LEN), *out = malloc(LEN);
        psc_request_t *recv, *send;
        psc_status_t status;
        pair_t pair;

        open_tuples(&pair);
        fill(out, LEN, 5);
        recv = expect_told(&pair, in, LEN, 5);
        status = way ? api->recv_give_up(recv) : api->cancel(recv);
        check(status == PSC_OK || status == PSC_INPROGRESS);
        send = post_sync(&pair.a, out, LEN, 5);
        check(finish(&pair, recv).status == PSC_ERR_CANCELLED);
        there_and_back(&pair);
        check(!done(send));
        receive(&pair, in, LEN, 5, 5);
        sent(&pair, send);
        pair_close(&pair);
        free(in);
        free(out);
    }
}

/* A message that was announced cannot be cancelled, one that waits can. */
CASE(synchronous_is_cancelled)
{
    psc_recv_args_t args = {.context = CONTEXT, .tag = 2};
    psc_request_t *sends[3];
    psc_result_t result;
    char in[8], out[8];
    pair_t pair;

    options.rts_max = 2;
    pair_open(&pair);
    args.source = pair.b.conn;
    fill(out, sizeof out, 1);
    for (int i = 0; i < 3; i++)
        sends[i] = post_sync(&pair.a, out, sizeof out, i);
    check(api->cancel(sends[2]) == PSC_OK);
    check(finish(&pair, sends[2]).status == PSC_ERR_CANCELLED);
    check(api->cancel(sends[1]) == PSC_ERR_INVALID);
    there_and_back(&pair);
    for (int i = 0; i < 2; i++) {
        receive(&pair, in, sizeof in, i, 1);
        sent(&pair, sends[i]);
    }
    there_and_back(&pair);
    check(api->iprobe(pair.b.worker, &args, &result) == PSC_INPROGRESS);
    pair_close(&pair);
}

/* ---- ends ---- */

/* The message arrives or not, but no receive matches it. */
static void ends(bool closes, bool arrives, size_t len)
{
    char *out = calloc(1, len + 1);
    psc_request_t *send;
    psc_status_t status;
    pair_t pair;

    pair_open(&pair);
    send = post_sync(&pair.a, out, len, 1);
    if (arrives)
        there_and_back(&pair);
    if (closes)
        psc_conn_close(pair.b.conn);
    else
        psc_conn_fail(pair.b.conn, PSC_ERR_PEER_LOST);
    if (closes)
        psc_conn_close(pair.a.conn);
    status = finish(&pair, send).status;
    check(closes ? status == PSC_ERR_CLOSED : status < 0);
    until(&pair, psc_conn_state(pair.a.conn) >= PSC_CONN_CLOSED);
    until(&pair, psc_conn_state(pair.b.conn) >= PSC_CONN_CLOSED);
    check(!closes || !arrives || pair.b.conn->rts_in == 0);
    pair_close(&pair);
    free(out);
}

CASE(synchronous_ends)
{
    for (int way = 0; way < 4; way++) {
        ends(way & 1, way & 2, 0);
        ends(way & 1, way & 2, LEN);
    }
}
