/* Messages of several contexts between the same two workers: none matches a
 * receive of another context, however alike the numbers are. */
#include "harness.h"
#include "pscompy/core/types/connection.h"
#include "pscompy/core/wire.h"

/* Contexts that differ in few bits. A fabric that matches carries the first two
 * only. */
static const uint32_t contexts[] = {
    CONTEXT,
    PSC_CONTEXT_OBJECTS + CONTEXT,
    CONTEXT + (1u << PSC_TAG_NUMBER_BITS),
    CONTEXT + (1u << 16),
    CONTEXT + (1u << 29),
    PSC_CONTEXT_OBJECTS + CONTEXT + (1u << PSC_TAG_NUMBER_BITS),
    PSC_CONTEXT_ACTIONS + CONTEXT + (1u << 24),
};
enum { N = sizeof contexts / sizeof *contexts, LONGEST = 300000 };
static char out[N][LONGEST], in[N][LONGEST];

static psc_request_t *send_in(side_t *side, int i, size_t len)
{
    psc_iov_t iov = {out[i], len};
    psc_send_args_t args = {
        .context = contexts[i], .tag = 7, .iov = &iov, .n_iov = 1};
    psc_request_t *request = NULL;

    fill(out[i], len, (unsigned)i);
    check(api->send(side->conn, &args, &request) >= 0);
    return request;
}

static psc_request_t *recv_in(side_t *side, psc_conn_t *source, int i,
                              size_t len, int32_t tag, psc_result_t *result)
{
    psc_iov_t iov = {in[i], len};
    psc_recv_args_t args = {.source = source,
                            .context = contexts[i],
                            .tag = tag,
                            .iov = &iov,
                            .n_iov = 1};
    psc_request_t *request = NULL;

    memset(in[i], 0, len);
    memset(result, 0, sizeof *result);
    result->status = api->recv(side->worker, &args, result, &request);
    return request;
}

static void expect_own(int i, size_t len, psc_result_t result)
{
    check(result.status == PSC_OK && result.nbytes == len && result.tag == 7);
    check(filled(in[i], len, (unsigned)i));
}

static void finish_all(pair_t *pair, psc_request_t **sends)
{
    for (int i = 0; i < N; i++)
        sent(pair, sends[i]);
}

/* The receives wait; the messages arrive in the opposite order. */
static void meet_receives(pair_t *pair, size_t len)
{
    psc_request_t *sends[N], *recvs[N];
    psc_result_t result;

    for (int i = 0; i < N; i++)
        recvs[i] = recv_in(&pair->b, pair->b.conn, i, len, 7, &result);
    for (int i = N - 1; i >= 0; i--)
        sends[i] = send_in(&pair->a, i, len);
    for (int i = 0; i < N; i++)
        expect_own(i, len, finish(pair, recvs[i]));
    finish_all(pair, sends);
}

/* The messages wait; the receives are posted in the opposite order. */
static void meet_messages(pair_t *pair, size_t len, bool any)
{
    psc_request_t *sends[N], *recv;
    psc_result_t result;

    for (int i = 0; i < N; i++)
        sends[i] = send_in(&pair->a, i, len);
    settle(pair);
    for (int i = N - 1; i >= 0; i--) {
        recv = recv_in(&pair->b, any ? NULL : pair->b.conn, i, len,
                       any ? PSC_ANY_TAG : 7, &result);
        expect_own(i, len, recv ? finish(pair, recv) : result);
    }
    finish_all(pair, sends);
}

CASE(contexts_stay_apart)
{
    static const size_t lengths[] = {0, 8, 1000, 20000, LONGEST};
    pair_t pair;

    pair_open(&pair);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        meet_receives(&pair, lengths[i]);
        meet_messages(&pair, lengths[i], false);
        meet_messages(&pair, lengths[i], true);
        meet_receives(&pair, lengths[i]);
    }
    pair_close(&pair);
}

/* A fabric that matches has the messages of the first two contexts only. */
CASE(contexts_of_the_fabric)
{
    psc_request_t *recvs[N], *sends[N];
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    for (int i = 0; i < N; i++)
        recvs[i] = recv_in(&pair.b, pair.b.conn, i, LONGEST, 7, &result);
    if (pair.b.conn->matches)
        check(count(pair.b.worker, PSC_COUNTER_tag_posted) == 2);
    for (int i = 0; i < N; i++)
        sends[i] = send_in(&pair.a, i, 8);
    for (int i = 0; i < N; i++)
        expect_own(i, 8, finish(&pair, recvs[i]));
    if (pair.b.conn->matches)
        check(count(pair.b.worker, PSC_COUNTER_tag_matched) == 2);
    finish_all(&pair, sends);
    pair_close(&pair);
}

CASE(match_bits_of_a_context)
{
    for (uint32_t class = 0; class < 4; class++) {
        for (uint32_t number = 0; number <= PSC_TAG_NUMBER; number++) {
            uint32_t context = class * PSC_CONTEXT_OBJECTS + number;

            check(psc_tag_context(psc_tag_bits(context, PSC_TAG_MAX)) ==
                  context);
        }
        check(!psc_tag_has_context(class * PSC_CONTEXT_OBJECTS +
                                   PSC_TAG_NUMBER + 1));
    }
    check(!psc_tag_has_context(PSC_CONTEXT_AM));
}
