/* Connections that end normally, fail, or never connect. */
#include "harness.h"
#include "pscompy/core/lane.h"

CASE(close_in_order)
{
    psc_request_t *waiting;
    psc_result_t result;
    pair_t pair;
    char in[16];

    pair_open(&pair);
    waiting = post_recv(&pair.b, pair.b.conn, in, 16, 77, &result);
    check(!post_send(&pair.a, "last words", 10, 1));
    psc_conn_close(pair.a.conn);
    until(&pair, psc_conn_state(pair.a.conn) == PSC_CONN_CLOSED);
    until(&pair, psc_conn_state(pair.b.conn) == PSC_CONN_CLOSED);
    check(finish(&pair, waiting).status == PSC_ERR_CLOSED);
    check(!post_recv(&pair.b, pair.b.conn, in, 16, 1, &result));
    check(result.status == PSC_OK && result.nbytes == 10);
    check(!post_recv(&pair.b, pair.b.conn, in, 16, 1, &result));
    check(result.status == PSC_ERR_CLOSED);
    pair_close(&pair);
}

CASE(close_both)
{
    pair_t pair;

    pair_open(&pair);
    psc_conn_close(pair.a.conn);
    psc_conn_close(pair.b.conn);
    until(&pair, psc_conn_state(pair.a.conn) == PSC_CONN_CLOSED);
    until(&pair, psc_conn_state(pair.b.conn) == PSC_CONN_CLOSED);
    pair_close(&pair);
}

/* ---- sends without a receive ---- */

enum { PENDING = 40, PENDING_LEN = 50000 };

static char pending_out[PENDING_LEN];

static void post_pending(side_t *side, psc_request_t **sends)
{
    for (int i = 0; i < PENDING; i++)
        sends[i] = post_send(side, pending_out, PENDING_LEN, 1);
}

static void pending_end(pair_t *pair, psc_request_t **sends)
{
    for (int i = 0; i < PENDING; i++)
        check(finish(pair, sends[i]).status == PSC_ERR_CLOSED);
}

/* Both sides close while their long messages wait for receives that nobody
 * posts; b closes when a's messages have arrived, or at once. */
static void close_with_pending(bool settled)
{
    psc_request_t *sends_a[PENDING], *sends_b[PENDING];
    pair_t pair;

    pair_open(&pair);
    post_pending(&pair.a, sends_a);
    post_pending(&pair.b, sends_b);
    if (settled)
        settle(&pair);
    psc_conn_close(pair.a.conn);
    if (settled)
        settle(&pair);
    psc_conn_close(pair.b.conn);
    pending_end(&pair, sends_a);
    pending_end(&pair, sends_b);
    until(&pair, psc_conn_state(pair.a.conn) == PSC_CONN_CLOSED);
    until(&pair, psc_conn_state(pair.b.conn) == PSC_CONN_CLOSED);
    check(pair.a.conn->rts_in == 0 && pair.b.conn->rts_in == 0);
    pair_close(&pair);
}

CASE(close_both_with_pending_sends)
{
    close_with_pending(true);
    close_with_pending(false);
}

/* What b has received, or has a receive for, arrives although both close; the
 * other messages do not. */
CASE(close_both_with_some_receives)
{
    enum { RECEIVES = 3 };
    psc_request_t *sends_a[PENDING], *sends_b[PENDING], *recvs[RECEIVES];
    static char in[RECEIVES][PENDING_LEN];
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    fill(pending_out, PENDING_LEN, 3);
    post_pending(&pair.a, sends_a);
    post_pending(&pair.b, sends_b);
    settle(&pair);
    for (int i = 0; i < RECEIVES; i++)
        recvs[i] = post_recv(&pair.b, NULL, in[i], PENDING_LEN, 1, &result);
    psc_conn_close(pair.a.conn);
    psc_conn_close(pair.b.conn);
    for (int i = 0; i < RECEIVES; i++) {
        check(finish(&pair, recvs[i]).status == PSC_OK);
        check(filled(in[i], PENDING_LEN, 3));
    }
    for (int i = 0; i < PENDING; i++) {
        check(finish(&pair, sends_a[i]).status ==
              (i < RECEIVES ? PSC_OK : PSC_ERR_CLOSED));
    }
    pending_end(&pair, sends_b);
    until(&pair, psc_conn_state(pair.a.conn) == PSC_CONN_CLOSED);
    until(&pair, psc_conn_state(pair.b.conn) == PSC_CONN_CLOSED);
    pair_close(&pair);
}

/* One side closes: its own messages are delivered, because the other one still
 * receives, and the other one's messages end. */
CASE(close_one_with_pending_sends)
{
    psc_request_t *sends_a[PENDING], *sends_b[PENDING], *recv;
    static char in[PENDING_LEN];
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    fill(pending_out, PENDING_LEN, 4);
    post_pending(&pair.a, sends_a);
    post_pending(&pair.b, sends_b);
    settle(&pair);
    psc_conn_close(pair.a.conn);
    pending_end(&pair, sends_b);
    check(psc_conn_state(pair.b.conn) == PSC_CONN_UP);
    for (int i = 0; i < PENDING; i++) {
        recv = post_recv(&pair.b, i % 2 ? NULL : pair.b.conn, in, PENDING_LEN,
                         1, &result);
        check((recv ? finish(&pair, recv) : result).status == PSC_OK);
        check(filled(in, PENDING_LEN, 4));
        sent(&pair, sends_a[i]);
    }
    until(&pair, psc_conn_state(pair.a.conn) == PSC_CONN_CLOSED);
    until(&pair, psc_conn_state(pair.b.conn) == PSC_CONN_CLOSED);
    pair_close(&pair);
}

/* The closing side is destroyed before its CLOSE can be acknowledged. */
CASE(close_then_gone)
{
    pair_t pair;

    pair_open(&pair);
    psc_conn_close(pair.a.conn);
    if (pair.a.worker != pair.b.worker) {
        psc_worker_destroy(pair.a.worker);
        pair.a = pair.b;
    }
    until(&pair, psc_conn_state(pair.b.conn) == PSC_CONN_CLOSED);
    settle(&pair);
    pair_close(&pair);
}

CASE(fail_midway)
{
    size_t len = 8 << 20;
    char *out = malloc(len), *in = malloc(len);
    psc_request_t *send, *recv, *late;
    psc_result_t result;
    pair_t pair;

    options.scheme = PSC_RNDV_AM;
    pair_open(&pair);
    late = post_recv(&pair.a, pair.a.conn, in, len, 3, &result);
    recv = post_recv(&pair.b, pair.b.conn, in, len, 1, &result);
    send = post_send(&pair.a, out, len, 1);
    for (int i = 0; i < 3; i++)
        pair_progress(&pair);
    psc_conn_fail(pair.a.conn, PSC_ERR_PEER_LOST);
    check(finish(&pair, send).status == PSC_ERR_PEER_LOST);
    check(finish(&pair, late).status == PSC_ERR_PEER_LOST);
    check(finish(&pair, recv).status < 0);
    check(psc_conn_state(pair.b.conn) == PSC_CONN_FAILED);
    pair_close(&pair);
    free(out);
    free(in);
}

/* ---- connecting that fails ---- */

typedef psc_status_t (*look_t)(psc_worker_t *worker,
                               const psc_recv_args_t *args,
                               psc_result_t *result_p,
                               psc_request_t **request_p);

static void check_refused(psc_worker_t *worker, const psc_recv_args_t *args)
{
    psc_request_t *request = NULL;
    psc_result_t result;

    check(api->recv(worker, args, &result, &request) == PSC_ERR_NO_RESOURCE);
    check(api->probe(worker, args, &result, &request) == PSC_ERR_NO_RESOURCE);
    check(api->iprobe(worker, args, &result) == PSC_ERR_NO_RESOURCE);
    check(request == NULL);
}

static void check_ends(psc_conn_t *conn, look_t look,
                       const psc_recv_args_t *args)
{
    psc_worker_t *worker = api->conn_worker(conn);
    psc_request_t *request = NULL;
    psc_result_t result;

    check(psc_conn_connecting(conn) == PSC_OK);
    check(look(worker, args, &result, &request) == PSC_INPROGRESS);
    psc_conn_fail(conn, PSC_ERR_CONNECT);
    check(done(request));
    check(request->result.status == PSC_ERR_CONNECT);
    api->request_free(request);
}

/* The peer's lane is closed after it came up here, but before
 * psc_conn_install. */
CASE(gone_before_installed)
{
    pair_t pair;
    psc_lane_t *lane_a, *lane_b;
    psc_request_t *recv;
    psc_result_t result;
    char in[8];

    pair_open(&pair);
    pair_lanes(&pair, &lane_a, &lane_b);
    psc_lane_destroy(lane_b);
    until(&pair, psc_lane_state(lane_a) == PSC_LANE_FAILED);
    pair.a.conn = side_install(&pair.a, lane_a);
    check(psc_conn_state(pair.a.conn) == PSC_CONN_FAILED);
    recv = post_recv(&pair.a, pair.a.conn, in, sizeof in, 1, &result);
    check((recv ? finish(&pair, recv) : result).status == PSC_ERR_PEER_LOST);
    pair_close(&pair);
}

/* A peer sends a message that only this side may make, before psc_conn_install:
 * as a whole, or with the header first. */
static void forge_early(bool whole)
{
    static const psc_wire_eager_t wire;
    psc_am_t am = {
        .id = PSC_WIRE_MATCHED, .header_len = sizeof wire, .header = &wire};
    pair_t pair;
    psc_lane_t *lane_a, *lane_b;
    psc_dest_t dest;

    pair_open(&pair);
    pair_lanes(&pair, &lane_a, &lane_b);
    psc_lock_acquire(&lane_a->worker->lock);
    if (whole) {
        check(psc_lane_upcalls.am_recv(lane_a->ep, &am) == PSC_OK);
    } else {
        psc_lane_upcalls.am_begin(lane_a->ep, (uint8_t)am.id, &wire,
                                  sizeof wire, 8, &dest);
        psc_lane_upcalls.am_end(lane_a->ep, dest.cookie);
    }
    psc_lock_release(&lane_a->worker->lock);
    check(psc_lane_state(lane_a) == PSC_LANE_FAILED);
    check(lane_a->status == PSC_ERR_PROTOCOL);
    psc_lane_destroy(lane_a);
    psc_lane_destroy(lane_b);
    pair_close(&pair);
}

CASE(forged_before_installed)
{
    forge_early(true);
    forge_early(false);
}

static void early_delivered(psc_lane_t *lane, size_t len, bool whole)
{
    static const psc_wire_credit_t wire;
    static char payload[100000];
    psc_am_t am = {.id = PSC_WIRE_CREDIT,
                   .header_len = sizeof wire,
                   .header = &wire,
                   .payload = payload,
                   .len = len};
    psc_dest_t dest;

    psc_lock_acquire(&lane->worker->lock);
    if (whole) {
        check(psc_lane_upcalls.am_recv(lane->ep, &am) == PSC_OK);
    } else {
        psc_lane_upcalls.am_begin(lane->ep, PSC_WIRE_CREDIT, &wire, sizeof wire,
                                  len, &dest);
        psc_lane_upcalls.am_end(lane->ep, dest.cookie);
    }
    psc_lock_release(&lane->worker->lock);
}

/* A peer sends too much before psc_conn_install: in many messages, or in one
 * whose header says so. */
static void flood_early(size_t len, bool whole)
{
    char reason[PSC_REASON_MAX];
    psc_lane_t *lane_a, *lane_b;
    pair_t pair;

    pair_open(&pair);
    pair_lanes(&pair, &lane_a, &lane_b);
    for (size_t n = 0; n <= 1 << 20; n += len)
        early_delivered(lane_a, len, whole);
    check(psc_lane_state(lane_a) == PSC_LANE_FAILED);
    check(lane_a->status == PSC_ERR_PROTOCOL);
    psc_lane_reason(lane_a, reason);
    check(strstr(reason, "before the connection was up"));
    psc_lane_destroy(lane_a);
    psc_lane_destroy(lane_b);
    pair_close(&pair);
}

CASE(flooded_before_installed)
{
    flood_early(100000, true);
    flood_early(100000, false);
    flood_early((1 << 20) + 1, false);
}

/* The lane of a peer that has sent a message is closed before psc_conn_install;
 * the message is not lost. */
CASE(sent_and_gone_before_installed)
{
    pair_t pair;
    psc_lane_t *lane_a, *lane_b;
    psc_request_t *recv;
    psc_result_t result;
    char in[8] = "";

    pair_open(&pair);
    pair_lanes(&pair, &lane_a, &lane_b);
    pair.b.conn = side_install(&pair.b, lane_b);
    check(!post_send(&pair.b, "message", 8, 1));
    settle(&pair);
    psc_conn_fail(pair.b.conn, PSC_ERR_TRANSPORT);
    until(&pair, psc_lane_state(lane_a) == PSC_LANE_FAILED);
    pair.a.conn = side_install(&pair.a, lane_a);
    recv = post_recv(&pair.a, pair.a.conn, in, sizeof in, 1, &result);
    check((recv ? finish(&pair, recv) : result).status == PSC_OK);
    check(memcmp(in, "message", 8) == 0);
    recv = post_recv(&pair.a, pair.a.conn, in, sizeof in, 1, &result);
    check((recv ? finish(&pair, recv) : result).status == PSC_ERR_PEER_LOST);
    pair_close(&pair);
}

/* Receives are posted, and all their messages but the last have arrived, before
 * psc_conn_install: none of the receives is left to the fabric too early. */
CASE(posted_and_sent_before_installed)
{
    psc_proto_params_t params = {.eager_max = options.eager_max,
                                 .zcopy_min = 16384,
                                 .fragment = 512 << 10};
    static const char texts[3][8] = {"first", "second", "third"};
    psc_request_t *recvs[3];
    psc_lane_t *lane_a, *lane_b;
    char in[3][8] = {"", "", ""};
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    pair_lanes(&pair, &lane_a, &lane_b);
    pair.b.conn = side_install(&pair.b, lane_b);
    pair.a.conn = psc_conn_create(pair.a.worker, UINT64_MAX, -1, true);
    check(psc_conn_connecting(pair.a.conn) == PSC_OK);
    for (int i = 0; i < 3; i++)
        recvs[i] = post_recv(&pair.a, pair.a.conn, in[i], 8, 1, &result);
    for (int i = 0; i < 2; i++)
        check(!post_send(&pair.b, texts[i], 8, 1));
    settle(&pair);
    check(psc_conn_install(pair.a.conn, &lane_a, 1, &params) == PSC_OK);
    check(!post_send(&pair.b, texts[2], 8, 1));
    for (int i = 0; i < 3; i++) {
        check(finish(&pair, recvs[i]).status == PSC_OK);
        check(strcmp(in[i], texts[i]) == 0);
    }
    pair_close(&pair);
}

/* Connecting may fail before the operation that started it is posted, or
 * after. */
CASE(lazy_is_not_awaited)
{
    char in[8];
    psc_iov_t iov = {in, sizeof in};
    psc_recv_args_t args = {.tag = PSC_ANY_TAG, .iov = &iov, .n_iov = 1};
    pair_t pair;

    pair_open(&pair);
    args.context = CONTEXT;
    args.source = psc_conn_create(pair.a.worker, UINT64_MAX, -1, true);
    check(args.source);
    check_refused(pair.a.worker, &args);
    check_ends(args.source, api->recv, &args);
    check_refused(pair.a.worker, &args);
    check_ends(args.source, api->probe, &args);
    check_refused(pair.a.worker, &args);
    psc_conn_destroy(args.source);
    pair_close(&pair);
}
