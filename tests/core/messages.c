/* Single messages of many lengths, sent and received in both orders, and how
 * receives match them. */
#include "harness.h"
#include "pscompy/core/types/connection.h"
#include "pscompy/core/worker.h"

static bool came_from(const psc_result_t *result, psc_conn_t *conn)
{
    return result->source == api->conn_id(conn) && result->rank == -1;
}

/* ---- one message, every length and order ---- */

static void exchange(pair_t *pair, size_t len, bool recv_first)
{
    char *out = malloc(len + 1), *in = calloc(1, len + 1);
    psc_request_t *send, *recv = NULL;
    psc_result_t result;

    fill(out, len, (unsigned)len);
    if (recv_first)
        recv = post_recv(&pair->b, pair->b.conn, in, len, 7, &result);
    send = post_send(&pair->a, out, len, 7);
    if (!recv_first) {
        settle(pair);
        recv = post_recv(&pair->b, pair->b.conn, in, len, PSC_ANY_TAG, &result);
    }
    if (recv)
        result = finish(pair, recv);
    sent(pair, send);
    check(result.status == PSC_OK && result.nbytes == len && result.tag == 7);
    check(came_from(&result, pair->b.conn) && filled(in, len, (unsigned)len));
    free(out);
    free(in);
}

static void sizes(psc_rndv_scheme_t scheme)
{
    static const size_t lengths[] = {0,     1,       8,       999,
                                     1000,  1001,    8192,    16384,
                                     65536, 1 << 20, 3 << 20, (5 << 20) + 3};
    pair_t pair;

    options.scheme = scheme;
    pair_open(&pair);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        exchange(&pair, lengths[i], true);
        exchange(&pair, lengths[i], false);
    }
    pair_close(&pair);
}

CASE(sizes_auto)
{
    sizes(PSC_RNDV_AUTO);
}

CASE(sizes_put)
{
    sizes(PSC_RNDV_PUT);
}

CASE(sizes_get)
{
    sizes(PSC_RNDV_GET);
}

CASE(sizes_am)
{
    pair_t pair;

    sizes(PSC_RNDV_AM);
    pair_open(&pair);
    exchange(&pair, 1 << 20, true);
    check(count(pair.a.worker, PSC_COUNTER_rndv_am) == 1);
    pair_close(&pair);
}

CASE(truncation)
{
    static const size_t lengths[] = {500, 100000};
    char *out = malloc(100000), in[64];
    pair_t pair;

    pair_open(&pair);
    for (int i = 0; i < 4; i++) {
        size_t len = lengths[i / 2];
        psc_request_t *send, *recv = NULL;
        psc_result_t result;

        fill(out, len, 3);
        if (i % 2)
            recv = post_recv(&pair.b, pair.b.conn, in, sizeof in, 1, &result);
        send = post_send(&pair.a, out, len, 1);
        settle(&pair);
        if (!recv)
            recv = post_recv(&pair.b, pair.b.conn, in, sizeof in, 1, &result);
        if (recv)
            result = finish(&pair, recv);
        sent(&pair, send);
        check(result.status == PSC_ERR_TRUNCATED && result.nbytes == len);
        check(filled(in, sizeof in, 3));
    }
    pair_close(&pair);
    free(out);
}

CASE(pieces)
{
    enum { PIECES = 40, EACH = 3001 };
    char *out = malloc(PIECES * EACH), *in = malloc(PIECES * EACH);
    psc_iov_t from[PIECES], to[PIECES];
    psc_request_t *send = NULL, *recv = NULL;
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    fill(out, PIECES * EACH, 5);
    for (int i = 0; i < PIECES; i++) {
        from[i] = (psc_iov_t){out + i * EACH, EACH};
        to[PIECES - 1 - i] = (psc_iov_t){in + (PIECES - 1 - i) * EACH, EACH};
    }
    psc_send_args_t send_args = {
        .context = CONTEXT, .tag = 1, .iov = from, .n_iov = PIECES};
    psc_recv_args_t recv_args = {.source = pair.b.conn,
                                 .context = CONTEXT,
                                 .tag = 1,
                                 .iov = to,
                                 .n_iov = PIECES};
    check(api->send(pair.a.conn, &send_args, &send) == PSC_INPROGRESS);
    check(api->recv(pair.b.worker, &recv_args, &result, &recv) ==
          PSC_INPROGRESS);
    check(finish(&pair, recv).nbytes == PIECES * EACH);
    check(finish(&pair, send).status == PSC_OK);
    check(filled(in, PIECES * EACH, 5));
    pair_close(&pair);
    free(out);
    free(in);
}

/* ---- matching ---- */

CASE(wildcards)
{
    char in[3][8];
    psc_request_t *first, *second, *third;
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    first = post_recv(&pair.b, NULL, in[0], 8, PSC_ANY_TAG, &result);
    second = post_recv(&pair.b, pair.b.conn, in[1], 8, 5, &result);
    third = post_recv(&pair.b, NULL, in[2], 8, 5, &result);
    for (unsigned i = 0; i < 3; i++) {
        char out[8];

        fill(out, 8, i);
        check(!post_send(&pair.a, out, 8, 5));
    }
    check(finish(&pair, first).tag == 5);
    check(finish(&pair, second).status == PSC_OK);
    result = finish(&pair, third);
    check(came_from(&result, pair.b.conn));
    for (unsigned i = 0; i < 3; i++)
        check(filled(in[i], 8, i));
    pair_close(&pair);
}

CASE(probe_and_cancel)
{
    psc_recv_args_t args = {.context = CONTEXT, .tag = PSC_ANY_TAG};
    psc_request_t *probe = NULL, *recv;
    psc_result_t result;
    pair_t pair;
    char in[100];

    pair_open(&pair);
    args.source = pair.b.conn;
    check(api->probe(pair.b.worker, &args, &result, &probe) == PSC_INPROGRESS);
    recv = post_recv(&pair.b, pair.b.conn, in, 100, 9, &result);
    check(api->cancel(recv) == PSC_OK);
    check(finish(&pair, recv).status == PSC_ERR_CANCELLED);
    post_send(&pair.a, "ninety-nine", 11, 9);
    check(finish(&pair, probe).nbytes == 11);
    check(api->iprobe(pair.b.worker, &args, &result) == PSC_OK);
    check(result.tag == 9);
    check(!post_recv(&pair.b, pair.b.conn, in, 100, 9, &result));
    check(result.status == PSC_OK && memcmp(in, "ninety-nine", 11) == 0);
    pair_close(&pair);
}

/* A receive without buffer is matched, cancelled, and posted again. */
static void matched_probe(pair_t *pair, size_t len)
{
    char *out = malloc(len), *in = malloc(len);
    psc_recv_args_t args = {.source = pair->b.conn,
                            .context = CONTEXT,
                            .tag = 4,
                            .flags = PSC_FLAG_NO_BUFFER};
    psc_iov_t iov = {in, len};
    psc_request_t *send, *recv = NULL;
    psc_result_t result;

    fill(out, len, 8);
    check(api->recv(pair->b.worker, &args, &result, &recv) == PSC_INPROGRESS);
    send = post_send(&pair->a, out, len, 4);
    until(pair, psc_request_state(recv) == PSC_REQUEST_MATCHED);
    check(recv->result.nbytes == len);
    check(api->cancel(recv) == PSC_OK);
    api->request_free(recv);
    recv = NULL;
    check(api->recv(pair->b.worker, &args, &result, &recv) == PSC_INPROGRESS);
    check(psc_request_state(recv) == PSC_REQUEST_MATCHED);
    check(api->recv_supply(recv, &iov, 1) >= 0);
    check(finish(pair, recv).status == PSC_OK && filled(in, len, 8));
    sent(pair, send);
    free(out);
    free(in);
}

CASE(matched_probe)
{
    pair_t pair;

    pair_open(&pair);
    matched_probe(&pair, 100);
    matched_probe(&pair, 30000);
    matched_probe(&pair, 300000);
    pair_close(&pair);
}

/* A receive without buffer whose iov has ROOM bytes: a longer message only
 * matches, and needs recv_supply. */
static void room(pair_t *pair, size_t len, bool posted)
{
    enum { ROOM = 64 };
    char *out = malloc(len), *in = malloc(len), short_in[ROOM];
    psc_iov_t room = {short_in, ROOM}, iov = {in, len};
    psc_recv_args_t args = {.source = pair->b.conn,
                            .context = CONTEXT,
                            .tag = 4,
                            .iov = &room,
                            .n_iov = 1,
                            .flags = PSC_FLAG_NO_BUFFER};
    psc_request_t *send, *recv = NULL;
    psc_result_t result;

    fill(out, len, 9);
    if (posted)
        check(api->recv(pair->b.worker, &args, &result, &recv) ==
              PSC_INPROGRESS);
    send = post_send(&pair->a, out, len, 4);
    if (!posted)
        until(pair, api->iprobe(pair->b.worker, &args, &result) == PSC_OK);
    if (!posted && api->recv(pair->b.worker, &args, &result, &recv) == PSC_OK)
        check(len <= ROOM && result.nbytes == len);
    if (recv)
        until(pair, psc_request_state(recv) != PSC_REQUEST_ACTIVE);
    if (len > ROOM) {
        check(recv && psc_request_state(recv) == PSC_REQUEST_MATCHED);
        check(api->recv_supply(recv, &iov, 1) >= 0);
    }
    if (recv)
        check(finish(pair, recv).nbytes == len);
    check(filled(len > ROOM ? in : short_in, len, 9));
    sent(pair, send);
    free(out);
    free(in);
}

/* A receive whose iov has several pieces, and is replaced by n_iov pieces for a
 * longer message. */
static void room_in_pieces(pair_t *pair, size_t n_room, size_t n_iov)
{
    char out[100], in[100], short_in[8];
    psc_iov_t room[8], iov[8];
    psc_recv_args_t args = {.source = pair->b.conn,
                            .context = CONTEXT,
                            .tag = 4,
                            .iov = room,
                            .n_iov = n_room,
                            .flags = PSC_FLAG_NO_BUFFER};
    psc_request_t *send, *recv = NULL;
    psc_result_t result;

    for (size_t i = 0; i < n_room; i++)
        room[i] = (psc_iov_t){short_in + i, 1};
    for (size_t i = 0; i < n_iov; i++)
        iov[i] = (psc_iov_t){in + i, 1};
    iov[n_iov - 1].len = sizeof in - (n_iov - 1);
    fill(out, sizeof out, 9);
    check(api->recv(pair->b.worker, &args, &result, &recv) == PSC_INPROGRESS);
    send = post_send(&pair->a, out, sizeof out, 4);
    until(pair, psc_request_state(recv) == PSC_REQUEST_MATCHED);
    check(api->recv_supply(recv, iov, n_iov) >= 0);
    check(finish(pair, recv).nbytes == sizeof in);
    check(filled(in, sizeof in, 9));
    sent(pair, send);
}

CASE(room)
{
    static const size_t lengths[] = {0, 8, 64, 65, 30000, 300000};
    pair_t pair;

    pair_open(&pair);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        room(&pair, lengths[i], true);
        room(&pair, lengths[i], false);
    }
    room_in_pieces(&pair, 3, 4); /* the first iov's memory must be freed */
    room_in_pieces(&pair, 5, 1);
    room_in_pieces(&pair, 1, 5);
    pair_close(&pair);
}

/* A receive that no message has matched takes neither memory nor a view. */
CASE(nothing_to_supply)
{
    char in[8];
    psc_iov_t iov = {in, sizeof in};
    psc_request_t *recv;
    psc_result_t result;
    psc_view_t *view;
    pair_t pair;

    pair_open(&pair);
    recv = post_recv(&pair.b, NULL, in, sizeof in, 1, &result);
    check(api->recv_supply(recv, &iov, 1) == PSC_ERR_INVALID);
    check(api->recv_view(recv, &view) == PSC_ERR_INVALID);
    check(api->cancel(recv) == PSC_OK);
    api->request_free(recv);
    pair_close(&pair);
}

/* Announce this many messages, wait for them, and receive them. Returns what
 * psc_rts_in_full says in between. */
static bool announced_is_full(pair_t *pair, int n)
{
    static char out[50000], in[50000];
    psc_request_t *sends[4], *recv;
    psc_result_t result;
    bool full;

    for (int i = 0; i < n; i++)
        sends[i] = post_send(&pair->a, out, sizeof out, 1);
    until(pair, pair->b.conn->rts_in == (uint32_t)n);
    settle(pair); /* a placeholder (tag.h) counts before its RTS arrives */
    full = psc_rts_in_full(pair->b.conn);
    for (int i = 0; i < n; i++) {
        recv = post_recv(&pair->b, pair->b.conn, in, sizeof in, 1, &result);
        check(finish(pair, recv).status == PSC_OK);
        sent(pair, sends[i]);
    }
    return full;
}

/* The peer's last announcement for now is the last only until receives have
 * answered some: later ones need not be. */
CASE(the_last_announcement)
{
    pair_t pair;

    options.rts_max = 2;
    pair_open(&pair);
    check(announced_is_full(&pair, 2));
    check(!announced_is_full(&pair, 1));
    /* with the configuration of another peer */
    pair.a.worker->config.rts_max = 4;
    check(!announced_is_full(&pair, 3));
    check(announced_is_full(&pair, 4));
    pair_close(&pair);
}
