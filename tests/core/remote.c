/* Operations without a receive: active messages, and remote memory. */
#include "hostile.h"
#include "pscompy/core/conn.h"
#include "pscompy/core/worker.h"
#include "pscompy/proto/rma.h"

static void forward(void *arg, const psc_message_t *message)
{
    check(api->am_post(arg, message->id + 1, message->header,
                       message->header_len, message->payload,
                       message->len) == PSC_OK);
}

CASE(active_messages)
{
    static const size_t lengths[] = {0, 10, 5000, 50000, 2000000};
    char *out = malloc(2000000);
    pair_t pair;

    pair_open(&pair);
    check(api->am_handler(pair.b.worker, 20, forward, pair.b.conn) == PSC_OK);
    check(api->am_handler(pair.a.worker, 21, NULL, &pair) == PSC_OK);
    check(api->am_handler(pair.a.worker, PSC_TAG_MAX + 1u, NULL, &pair) ==
          PSC_ERR_INVALID);
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

/* The header is the whole of a message that is announced. */
CASE(announced_without_payload)
{
    psc_send_args_t args = {.n_iov = 0};
    psc_request_t *request = NULL;
    psc_message_t *message = NULL;
    char header[2000];
    pair_t pair;

    options.eager_max = 100;
    pair_open(&pair);
    check(api->am_handler(pair.b.worker, 20, NULL, &pair) == PSC_OK);
    fill(header, sizeof header, 7);
    check(api->am_send(pair.a.conn, 20, header, sizeof header, &args,
                       &request) >= 0);
    until(&pair, (message = api->message_poll(pair.b.worker)));
    check(count(pair.a.worker, PSC_COUNTER_rndv_rts) == 1);
    check(message->header_len == sizeof header && message->len == 0);
    check(filled((void *)message->header, sizeof header, 7));
    api->message_free(pair.b.worker, message);
    if (request)
        check(finish(&pair, request).status == PSC_OK);
    pair_close(&pair);
}

/* An active message that cannot be sent is refused, or counted if it was
 * accepted. */
CASE(posted_to_nobody)
{
    psc_conn_t *lazy;
    pair_t pair;

    pair_open(&pair);
    lazy = psc_conn_create(pair.a.worker, UINT64_MAX, -1, true);
    check(lazy);
    check(api->am_post(lazy, 21, "head", 4, "x", 1) == PSC_ERR_NO_RESOURCE);
    check(psc_conn_connecting(lazy) == PSC_OK);
    check(api->am_post(lazy, 21, "head", 4, "x", 1) == PSC_OK);
    check(count(pair.a.worker, PSC_COUNTER_am_sent) == 1);
    psc_conn_fail(pair.a.conn, PSC_ERR_PEER_LOST);
    check(api->am_post(pair.a.conn, 21, "head", 4, "x", 1) == PSC_ERR_CLOSED);
    psc_conn_fail(lazy, PSC_ERR_CONNECT);
    check(api->am_post(lazy, 21, "head", 4, "x", 1) == PSC_ERR_NO_RESOURCE);
    check(count(pair.a.worker, PSC_COUNTER_am_sent) == 1);
    check(count(pair.a.worker, PSC_COUNTER_am_unsent) == 0);
    psc_conn_destroy(lazy);
    pair_close(&pair);
}

static void post_and_fail(void *arg, const psc_message_t *message)
{
    pair_t *pair = arg;

    (void)message;
    check(api->am_post(pair->b.conn, 22, "", 0, "answer", 6) == PSC_OK);
    psc_conn_fail_locked(pair->b.conn, PSC_ERR_TRANSPORT);
}

/* The connection ends before the inbox is emptied. */
CASE(posted_and_ended)
{
    psc_iov_t iov = {"question", 8};
    psc_send_args_t args = {.iov = &iov, .n_iov = 1};
    psc_request_t *request = NULL;
    pair_t pair;

    pair_open(&pair);
    check(api->am_handler(pair.b.worker, 21, post_and_fail, &pair) == PSC_OK);
    check(api->am_send(pair.a.conn, 21, "", 0, &args, &request) >= 0);
    until(&pair, count(pair.b.worker, PSC_COUNTER_am_unsent) == 1);
    if (request)
        finish(&pair, request);
    pair_close(&pair);
}

enum { UNPOLLED = 2000, UNPOLLED_LEN = 16000, UNPOLLED_MAX = 4 << 20 };

/* Send many more messages than may be kept, to a worker that polls none of
 * them. */
static void unpolled_send(pair_t *pair, psc_request_t **requests, char *out)
{
    psc_iov_t iov = {out, UNPOLLED_LEN};
    psc_send_args_t args = {.iov = &iov, .n_iov = 1};

    static uint32_t numbers[UNPOLLED];

    options.unexpected_max = UNPOLLED_MAX;
    pair_open(pair);
    check(api->am_handler(pair->b.worker, 21, NULL, pair) == PSC_OK);
    for (uint32_t i = 0; i < UNPOLLED; i++) {
        requests[i] = NULL;
        numbers[i] = i;
        check(api->am_send(pair->a.conn, 21, &numbers[i], sizeof i, &args,
                           &requests[i]) >= 0);
        pair_progress(pair);
    }
    settle(pair);
    /* At most the bound, and messages that had credit before it was reached. */
    check(count(pair->b.worker, PSC_COUNTER_am_received) * UNPOLLED_LEN <=
          UNPOLLED_MAX + 2 * (256 << 10) + 2 * UNPOLLED_LEN);
}

CASE(unpolled_messages)
{
    static bool seen[UNPOLLED];
    psc_request_t *requests[UNPOLLED];
    char *out = malloc(UNPOLLED_LEN);
    psc_message_t *message;
    pair_t pair;

    fill(out, UNPOLLED_LEN, 9);
    unpolled_send(&pair, requests, out);
    for (uint32_t n = 0, number; n < UNPOLLED; n++) {
        until(&pair, (message = api->message_poll(pair.b.worker)));
        memcpy(&number, message->header, sizeof number);
        check(number < UNPOLLED && !seen[number]);
        seen[number] = true;
        check(message->len == UNPOLLED_LEN &&
              filled(message->payload, UNPOLLED_LEN, 9));
        api->message_free(pair.b.worker, message);
    }
    for (uint32_t i = 0; i < UNPOLLED; i++)
        check(!requests[i] || finish(&pair, requests[i]).status == PSC_OK);
    check(count(pair.b.worker, PSC_COUNTER_am_received) == UNPOLLED);
    pair_close(&pair);
    free(out);
}

/* Announced messages that wait for room end with their connection. */
CASE(unpolled_and_ended)
{
    psc_request_t *requests[UNPOLLED];
    char *out = calloc(1, UNPOLLED_LEN);
    psc_message_t *message;
    pair_t pair;

    unpolled_send(&pair, requests, out);
    psc_conn_fail(pair.b.conn, PSC_ERR_TRANSPORT);
    while ((message = api->message_poll(pair.b.worker)))
        api->message_free(pair.b.worker, message);
    for (uint32_t i = 0; i < UNPOLLED; i++) {
        if (requests[i])
            finish(&pair, requests[i]);
    }
    pair_close(&pair);
    free(out);
}

/* A message that is longer than the whole bound arrives alone. */
CASE(unpolled_and_long)
{
    size_t len = 3 * UNPOLLED_MAX;
    char *out = malloc(len);
    psc_iov_t iov = {out, len};
    psc_send_args_t args = {.iov = &iov, .n_iov = 1};
    psc_request_t *requests[2] = {NULL, NULL};
    psc_message_t *message;
    pair_t pair;

    fill(out, len, 9);
    options.unexpected_max = UNPOLLED_MAX;
    pair_open(&pair);
    check(api->am_handler(pair.b.worker, 21, NULL, &pair) == PSC_OK);
    for (int i = 0; i < 2; i++)
        check(api->am_send(pair.a.conn, 21, "", 0, &args, &requests[i]) >= 0);
    until(&pair, count(pair.b.worker, PSC_COUNTER_am_received) >= 1);
    settle(&pair);
    check(count(pair.b.worker, PSC_COUNTER_am_received) == 1);
    for (int i = 0; i < 2; i++) {
        until(&pair, (message = api->message_poll(pair.b.worker)));
        check(message->len == len && filled(message->payload, len, 9));
        api->message_free(pair.b.worker, message);
        check(finish(&pair, requests[i]).status == PSC_OK);
    }
    pair_close(&pair);
    free(out);
}

CASE(remote_memory)
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
                   &request) == PSC_ERR_BOUNDS);
    check(api->region_size(packed, packed_len) == size);
    for (size_t i = 0; i < packed_len; i++) {
        packed[i] ^= (uint8_t)(1 << i % 8);
        check(api->put(pair.a.conn, &args, packed, packed_len, 0, &request) ==
              PSC_ERR_KEY);
        packed[i] ^= (uint8_t)(1 << i % 8);
        check(api->get(pair.a.conn, &args, packed, i, 0, &request) ==
              PSC_ERR_KEY);
    }
    api->region_destroy(handle);
    pair_close(&pair);
    free(region);
    free(local);
}

/* A key of a region that is authentic, but ends before what it says. */
CASE(keys_that_end_early)
{
    struct {
        psc_region_packed_t head;
        psc_region_packed_key_t key;
        uint8_t bytes[6]; /* without padding behind them */
    } packed = {.key = {.len = sizeof packed.bytes + 1}};
    char region[100], local[1];
    psc_iov_t iov = {local, sizeof local};
    psc_send_args_t args = {.iov = &iov, .n_iov = 1};
    size_t len = 2048;
    uint8_t good[2048];
    psc_region_t *handle;
    psc_request_t *request = NULL;
    pair_t pair;

    pair_open(&pair);
    check(api->region_create(pair.b.worker, region, sizeof region, &handle) ==
          PSC_OK);
    check(api->region_pack(handle, good, &len) == PSC_OK);
    memcpy(&packed.head, good, sizeof packed.head);
    for (uint32_t n_keys = 1; n_keys <= 2; n_keys++) {
        packed.head.n_keys = n_keys;
        packed.key.len -= n_keys - 1;
        psc_siphash(pair.a.worker->memory.secret,
                    (uint8_t *)&packed + PSC_SIPHASH_SIZE,
                    sizeof packed - PSC_SIPHASH_SIZE, packed.head.check);
        check(api->get(pair.a.conn, &args, (uint8_t *)&packed, sizeof packed, 0,
                       &request) == PSC_ERR_INVALID);
    }
    api->region_destroy(handle);
    pair_close(&pair);
}

/* Many more puts and gets by messages than may be under way at once. */
CASE(remote_memory_by_many)
{
    enum { N = 3000, LENGTH = 16 };
    static char region[2 * N * LENGTH], local[N * LENGTH], back[N * LENGTH];
    static psc_request_t *puts[N], *gets[N];
    psc_conn_t *here, *there;
    size_t packed_len = 2048;
    psc_region_t *handle;
    uint8_t packed[2048];
    pair_t pair;

    options.unlike = 1;
    pair_open(&pair);
    pair_join_by(&pair, 1, &here, &there);
    check(api->region_create(pair.b.worker, region, sizeof region, &handle) ==
          PSC_OK);
    check(api->region_pack(handle, packed, &packed_len) == PSC_OK);
    fill(local, sizeof local, 6);
    fill(region + sizeof back, sizeof back, 7);
    for (int i = 0; i < N; i++) {
        psc_iov_t from = {local + i * LENGTH, LENGTH};
        psc_iov_t into = {back + i * LENGTH, LENGTH};
        psc_send_args_t put = {.iov = &from, .n_iov = 1};
        psc_send_args_t get = {.iov = &into, .n_iov = 1};
        uint64_t offset = (uint64_t)i * LENGTH;

        check(api->put(here, &put, packed, packed_len, offset, &puts[i]) ==
              PSC_INPROGRESS);
        check(api->get(here, &get, packed, packed_len, sizeof back + offset,
                       &gets[i]) == PSC_INPROGRESS);
    }
    check(there->emulated.in <= 1024 && here->emulated.out <= 1024);
    for (int i = 0; i < N; i++) {
        check(finish(&pair, puts[i]).status == PSC_OK);
        check(finish(&pair, gets[i]).status == PSC_OK);
    }
    check(count(pair.a.worker, PSC_COUNTER_rma_emulated) == 2 * N);
    check(filled(region, sizeof local, 6) && filled(back, sizeof back, 7));
    check(here->emulated.out == 0);
    until(&pair, there->emulated.in == 0);
    api->region_destroy(handle);
    pair_close(&pair);
}

/* A flood of puts that are never carried out: a peer that exceeds the bound
 * loses its connection. unsaid: the peer's fabric refuses to send. */
CASE(hostile_puts)
{
    static char memory[100];
    psc_region_t *region;
    unsigned unsaid = 0;
    pair_t pair;

    pair_open(&pair);
    psc_worker_log_to(pair.a.worker, -1, 0);
    psc_worker_log_to(pair.b.worker, -1, 0);
    check(api->region_create(pair.a.worker, memory, sizeof memory, &region) ==
          PSC_OK);
    for (unsigned n = 0; n < 80000 && unsaid <= 1000 &&
                         psc_conn_state(pair.a.conn) != PSC_CONN_FAILED;
         n++) {
        psc_wire_rma_t wire = {.request_id = n,
                               .region = region->id,
                               .nonce = region->nonce,
                               .len = sizeof memory};

        unsaid += !hostile_speak(pair.b.conn, PSC_WIRE_RMA_PUT, &wire,
                                 sizeof wire, NULL, 0);
        api->progress(pair.a.worker, 0);
    }
    check(psc_conn_state(pair.a.conn) == PSC_CONN_FAILED || unsaid > 1000);
    api->region_destroy(region);
    hostile_part(&pair);
}
