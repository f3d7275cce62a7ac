/* The core's cases over one transport: cases.c NAME SETTING... */
#include <pthread.h>

#include "driven.h"
#include "harness.h"
#include "hostile.h"
#include "lending.h"
#include "lifetimes.h"

void harness_setting(char *argument);

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
        recv = post_recv(&pair->b, pair->b.conn, in, len, PSC_ANY_TAG,
                         &result);
    }
    if (recv)
        result = finish(pair, recv);
    if (send)
        check(finish(pair, send).status == PSC_OK);
    check(result.status == PSC_OK && result.nbytes == len && result.tag == 7);
    check(came_from(&result, pair->b.conn) && filled(in, len, (unsigned)len));
    free(out);
    free(in);
}

static void sizes(psc_rndv_scheme_t scheme)
{
    static const size_t lengths[] = {0,    1,     8,     999,     1000,
                                     1001, 8192,  16384, 65536,   1 << 20,
                                     3 << 20, (5 << 20) + 3};
    pair_t pair;

    options.scheme = scheme;
    pair_open(&pair);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        exchange(&pair, lengths[i], true);
        exchange(&pair, lengths[i], false);
    }
    pair_close(&pair);
}

static void case_sizes_auto(void)
{
    sizes(PSC_RNDV_AUTO);
}

static void case_sizes_put(void)
{
    sizes(PSC_RNDV_PUT);
}

static void case_sizes_get(void)
{
    sizes(PSC_RNDV_GET);
}

static void case_sizes_am(void)
{
    pair_t pair;

    sizes(PSC_RNDV_AM);
    pair_open(&pair);
    exchange(&pair, 1 << 20, true);
    check(count(pair.a.worker, PSC_COUNTER_rndv_am) == 1);
    pair_close(&pair);
}

static void case_truncation(void)
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
        if (send)
            check(finish(&pair, send).status == PSC_OK);
        check(result.status == PSC_ERR_TRUNCATED && result.nbytes == len);
        check(filled(in, sizeof in, 3));
    }
    pair_close(&pair);
    free(out);
}

static void case_pieces(void)
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
        to[PIECES - 1 - i] = (psc_iov_t){
            in + (PIECES - 1 - i) * EACH, EACH};
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

static void case_wildcards(void)
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

static void case_probe_and_cancel(void)
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

/* A receive without buffer, taken, given back, and taken again. */
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
    if (send)
        check(finish(pair, send).status == PSC_OK);
    free(out);
    free(in);
}

static void case_matched_probe(void)
{
    pair_t pair;

    pair_open(&pair);
    matched_probe(&pair, 100);
    matched_probe(&pair, 30000);
    matched_probe(&pair, 300000);
    pair_close(&pair);
}

/* A receive with room for ROOM bytes, and the length of what is longer. */
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
    if (send)
        check(finish(pair, send).status == PSC_OK);
    free(out);
    free(in);
}

static void case_room(void)
{
    static const size_t lengths[] = {0, 8, 64, 65, 30000, 300000};
    pair_t pair;

    pair_open(&pair);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        room(&pair, lengths[i], true);
        room(&pair, lengths[i], false);
    }
    pair_close(&pair);
}

/* ---- flow control ---- */

static void case_flood(void)
{
    enum { MESSAGES = 20000, LENGTH = 1000 };
    psc_request_t **sends = calloc(MESSAGES, sizeof *sends);
    char *out = malloc(LENGTH), in[LENGTH];
    pair_t pair;

    options.unexpected_max = 1 << 20;
    options.rts_max = 64;
    pair_open(&pair);
    for (unsigned i = 0; i < MESSAGES; i++) {
        fill(out, LENGTH, 0);
        sends[i] = post_send(&pair.a, out, LENGTH, (int32_t)i);
    }
    until(&pair, count(pair.b.worker, PSC_COUNTER_credits_withheld) > 0);
    until(&pair, count(pair.a.worker, PSC_COUNTER_credits_exhausted) > 0);
    settle(&pair);
    check(count(pair.b.worker, PSC_COUNTER_unexpected) < 3000);
    for (unsigned i = 0; i < MESSAGES; i++) {
        psc_result_t result;
        psc_request_t *recv = post_recv(&pair.b, pair.b.conn, in, LENGTH,
                                        PSC_ANY_TAG, &result);

        if (recv)
            result = finish(&pair, recv);
        check(result.tag == (int32_t)i && filled(in, LENGTH, 0));
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (sends[i])
            check(finish(&pair, sends[i]).status == PSC_OK);
    }
    pair_close(&pair);
    free(sends);
    free(out);
}

static void case_many_rendezvous(void)
{
    enum { N = 200, LENGTH = 100000 };
    char *out = malloc(LENGTH), *in = malloc((size_t)N * LENGTH);
    psc_request_t *sends[N], *recvs[N];
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    fill(out, LENGTH, 1);
    for (int i = 0; i < N; i++) {
        recvs[i] = post_recv(&pair.b, pair.b.conn, in + (size_t)i * LENGTH,
                             LENGTH, i, &result);
        sends[i] = post_send(&pair.a, out, LENGTH, i);
    }
    for (int i = N - 1; i >= 0; i--) {
        check(finish(&pair, recvs[i]).status == PSC_OK);
        check(finish(&pair, sends[i]).status == PSC_OK);
        check(filled(in + (size_t)i * LENGTH, LENGTH, 1));
    }
    pair_close(&pair);
    free(out);
    free(in);
}

/* ---- active messages and remote memory ---- */

static void forward(void *arg, const psc_message_t *message)
{
    check(api->am_post(arg, message->id + 1, message->header,
                       message->header_len, message->payload,
                       message->len) == PSC_OK);
}

static void case_active_messages(void)
{
    static const size_t lengths[] = {0, 10, 5000, 50000, 2000000};
    char *out = malloc(2000000);
    pair_t pair;

    pair_open(&pair);
    check(api->am_handler(pair.b.worker, 20, forward, pair.b.conn) == PSC_OK);
    check(api->am_handler(pair.a.worker, 21, NULL, &pair) == PSC_OK);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        psc_iov_t iov = {out, lengths[i]};
        psc_send_args_t args = {.iov = &iov, .n_iov = 1};
        psc_request_t *request = NULL;
        psc_message_t *message = NULL;

        fill(out, lengths[i], 9);
        check(api->am_send(pair.a.conn, 20, "head", 4, &args, &request) >= 0);
        until(&pair, (message = api->message_poll(pair.a.worker)));
        check(message->id == 21 && message->source == pair.a.conn);
        check(message->header_len == 4 && !memcmp(message->header, "head", 4));
        check((uintptr_t)message->header % 16 == 0);
        check(message->len == lengths[i]);
        check(filled(message->payload, lengths[i], 9));
        api->message_free(pair.a.worker, message);
        if (request)
            check(finish(&pair, request).status == PSC_OK);
    }
    pair_close(&pair);
    free(out);
}

static void case_remote_memory(void)
{
    static const size_t lengths[] = {1, 8, 4000, 3000000};
    size_t size = 4 << 20, packed_len = 2048;
    char *region = calloc(1, size), *local = malloc(size);
    psc_region_t *handle;
    uint8_t packed[2048];
    pair_t pair;

    pair_open(&pair);
    check(api->region_create(pair.b.worker, region, size, &handle) == PSC_OK);
    check(api->region_pack(handle, packed, &packed_len) == PSC_OK);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        psc_iov_t iov = {local, lengths[i]};
        psc_send_args_t args = {.iov = &iov, .n_iov = 1};
        psc_request_t *request = NULL;

        fill(local, lengths[i], 2);
        check(api->put(pair.a.conn, &args, packed, packed_len, 1000,
                       &request) == PSC_INPROGRESS);
        check(finish(&pair, request).status == PSC_OK);
        check(filled(region + 1000, lengths[i], 2));
        memset(local, 0, lengths[i]);
        check(api->get(pair.a.conn, &args, packed, packed_len, 1000,
                       &request) == PSC_INPROGRESS);
        check(finish(&pair, request).status == PSC_OK);
        check(filled(local, lengths[i], 2));
    }
    psc_iov_t iov = {local, 1000};
    psc_send_args_t args = {.iov = &iov, .n_iov = 1};
    psc_request_t *request = NULL;
    check(api->put(pair.a.conn, &args, packed, packed_len, size - 999,
                   &request) == PSC_ERR_INVALID);
    api->region_destroy(handle);
    pair_close(&pair);
    free(region);
    free(local);
}

/* ---- ends ---- */

static void case_close_in_order(void)
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

static void case_close_both(void)
{
    pair_t pair;

    pair_open(&pair);
    psc_conn_close(pair.a.conn);
    psc_conn_close(pair.b.conn);
    until(&pair, psc_conn_state(pair.a.conn) == PSC_CONN_CLOSED);
    until(&pair, psc_conn_state(pair.b.conn) == PSC_CONN_CLOSED);
    pair_close(&pair);
}

/* The closing side is gone before its farewell can be answered. */
static void case_close_then_gone(void)
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

static void case_fail_midway(void)
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

/* ---- threads ---- */

typedef struct thread_args {
    side_t side;
    int32_t tag;
    bool sender;
} thread_args_t;

enum { THREAD_MESSAGES = 3000 };

static void thread_wait(side_t *side, psc_request_t *request)
{
    psc_status_t status;

    do {
        status = api->wait(side->worker, &request, 1, PSC_WAIT_ALL,
                           PATIENCE_NS);
    } while (status == PSC_ERR_INTERRUPTED || status == PSC_INPROGRESS);
    check(status == PSC_OK && request->result.status == PSC_OK);
    api->request_free(request);
}

static void *thread_main(void *arg)
{
    thread_args_t *me = arg;
    static const size_t lengths[] = {8, 3000, 70000};
    char *buffer = malloc(70000);

    for (int i = 0; i < THREAD_MESSAGES; i++) {
        size_t len = lengths[i % 3];
        psc_request_t *request;
        psc_result_t result = {.status = PSC_OK};

        if (me->sender) {
            fill(buffer, len, (unsigned)i);
            request = post_send(&me->side, buffer, len, me->tag);
        } else {
            request = post_recv(&me->side, me->side.conn, buffer, 70000,
                                me->tag, &result);
        }
        if (request)
            thread_wait(&me->side, request);
        check(result.status >= 0 && filled(buffer, len, (unsigned)i));
    }
    free(buffer);
    return NULL;
}

/* Four threads a side on one connection: two send, two receive. */
static void case_threads(void)
{
    thread_args_t args[8];
    pthread_t threads[8];
    pair_t pair;

    pair_open(&pair);
    for (int i = 0; i < 8; i++) {
        args[i] = (thread_args_t){.side = i < 4 ? pair.a : pair.b,
                                  .tag = i % 4 < 2 ? i % 2 : 2 + i % 2,
                                  .sender = (i < 4) == (i % 4 < 2)};
        check(!pthread_create(&threads[i], NULL, thread_main, &args[i]));
    }
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    pair_close(&pair);
}

/* ---- main ---- */

static const struct {
    const char *name;
    void (*func)(void);
} cases[] = {
    {"sizes_auto", case_sizes_auto},
    {"sizes_put", case_sizes_put},
    {"sizes_get", case_sizes_get},
    {"sizes_am", case_sizes_am},
    {"truncation", case_truncation},
    {"pieces", case_pieces},
    {"wildcards", case_wildcards},
    {"probe_and_cancel", case_probe_and_cancel},
    {"matched_probe", case_matched_probe},
    {"room", case_room},
    {"flood", case_flood},
    {"many_rendezvous", case_many_rendezvous},
    {"active_messages", case_active_messages},
    {"remote_memory", case_remote_memory},
    {"close_in_order", case_close_in_order},
    {"close_both", case_close_both},
    {"close_then_gone", case_close_then_gone},
    {"fail_midway", case_fail_midway},
    {"hostile_frames", case_hostile_frames},
    {"hostile_flood", case_hostile_flood},
    {"hostile_announcements", case_hostile_announcements},
    {"frames_after_the_end", case_frames_after_the_end},
    {"destroyed_connections_are_freed", case_destroyed_connections_are_freed},
    {"destroy_with_unreceived_messages", case_destroy_with_unreceived_messages},
    {"destroy_with_messages_in_hand", case_destroy_with_messages_in_hand},
    {"wake", case_wake},
    {"blocks", case_blocks},
    {"lending", case_lending},
    {"lent_and_received", case_lent_and_received},
    {"views_outlive_all", case_views_outlive_all},
    {"views_are_kept", case_views_are_kept},
    {"lending_threads", case_lending_threads},
    {"hostile_loans", case_hostile_loans},
    {"hostile_keys", case_hostile_keys},
    {"threads", case_threads},
    {"driven", case_driven},
    {"driven_and_waited", case_driven_and_waited},
};

int main(int argc, char **argv)
{
    api = (const psc_api_t *)psc_api_address();
    for (int i = 2; i < argc; i++)
        harness_setting(argv[i]);
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name) != 0)
            continue;
        options = (options_t){.eager_max = 1000,
                              .unexpected_max = 64 << 20,
                              .rts_max = 1024};
        cases[i].func();
        return 0;
    }
    fprintf(stderr, "usage: %s CASE NAME=NUMBER:TEXT...\n", argv[0]);
    return 2;
}
