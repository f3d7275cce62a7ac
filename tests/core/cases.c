/* The core's test cases over one transport. Usage: cases NAME SETTING... */
#include <pthread.h>

#include "harness.h"

void harness_setting(char *argument);
uint64_t harness_number(const char *name);

/* ---- flow control ---- */

CASE(flood)
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
        psc_request_t *recv =
            post_recv(&pair.b, pair.b.conn, in, LENGTH, PSC_ANY_TAG, &result);

        if (recv)
            result = finish(&pair, recv);
        check(result.tag == (int32_t)i && filled(in, LENGTH, 0));
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        sent(&pair, sends[i]);
    }
    pair_close(&pair);
    free(sends);
    free(out);
}

CASE(many_rendezvous)
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
        sent(&pair, sends[i]);
        check(filled(in + (size_t)i * LENGTH, LENGTH, 1));
    }
    pair_close(&pair);
    free(out);
    free(in);
}

/* ---- threads ---- */

typedef struct thread_args {
    side_t side;
    int32_t tag;
    bool sender;
    int messages;
} thread_args_t;

enum { THREAD_MESSAGES = 1000 };

static int messages_wanted(void)
{
    const char *wanted = getenv("PSCOMPY_TEST_MESSAGES");

    return wanted ? atoi(wanted) : THREAD_MESSAGES;
}

static void thread_wait(side_t *side, psc_request_t *request)
{
    psc_status_t status;

    do {
        status =
            api->wait(side->worker, &request, 1, PSC_WAIT_ALL, PATIENCE_NS);
    } while (status == PSC_ERR_INTERRUPTED || status == PSC_INPROGRESS);
    check(status == PSC_OK && request->result.status == PSC_OK);
    api->request_free(request);
}

static void *thread_main(void *arg)
{
    thread_args_t *me = arg;
    static const size_t lengths[] = {8, 3000, 70000};
    char *buffer = malloc(70000);

    for (int i = 0; i < me->messages; i++) {
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

/* Four threads per side on one connection: two send, two receive. */
CASE(threads)
{
    thread_args_t args[8];
    pthread_t threads[8];
    pair_t pair;

    pair_open(&pair);
    for (int i = 0; i < 8; i++) {
        args[i] = (thread_args_t){.side = i < 4 ? pair.a : pair.b,
                                  .tag = i % 4 < 2 ? i % 2 : 2 + i % 2,
                                  .sender = (i < 4) == (i % 4 < 2),
                                  .messages = messages_wanted()};
        check(!pthread_create(&threads[i], NULL, thread_main, &args[i]));
    }
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    pair_close(&pair);
}

/* ---- main ---- */

int main(int argc, char **argv)
{
    const test_case_t *found = argc > 1 ? test_case_find(argv[1]) : NULL;

    api = (const psc_api_t *)psc_api_address();
    for (int i = 2; i < argc; i++)
        harness_setting(argv[i]);
    options = (options_t){.eager_max = 1000,
                          .unexpected_max = 64 << 20,
                          .rts_max = 1024,
                          .tuple_min = harness_number("TUPLE_MIN"),
                          .tuple_am = harness_number("TUPLE_AM") != 0};
    if (found) {
        found->run();
        return 0;
    }
    fprintf(stderr, "usage: %s CASE NAME=NUMBER:TEXT...\n", argv[0]);
    return 2;
}
