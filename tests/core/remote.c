/* What needs no receive: active messages, and memory of the other side. */
#include "harness.h"
#include "remote.h"

static void forward(void *arg, const psc_message_t *message)
{
    check(api->am_post(arg, message->id + 1, message->header,
                       message->header_len, message->payload,
                       message->len) == PSC_OK);
}

void case_active_messages(void)
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

void case_remote_memory(void)
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
