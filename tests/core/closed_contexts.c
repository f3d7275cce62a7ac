/* Contexts of Worlds: those that are open, not open yet, and closed. */
#include "harness.h"
#include "pscompy/core/types/connection.h"
#include "pscompy/core/worker.h"
#include "pscompy/proto/match.h"

/* FEW short messages fit into the credit. */
enum { NUMBER = PSC_CONTEXT_USER, LONG = 300000, MANY = 3000, FEW = 300 };
static char out[LONG], in[LONG];

static psc_request_t *send_in(side_t *side, uint32_t context, size_t len)
{
    psc_iov_t iov = {out, len};
    psc_send_args_t args = {
        .context = context, .tag = 7, .iov = &iov, .n_iov = 1};
    psc_request_t *request = NULL;

    check(api->send(side->conn, &args, &request) >= 0);
    return request;
}

static psc_request_t *recv_in(side_t *side, psc_conn_t *source,
                              uint32_t context, size_t len,
                              psc_result_t *result)
{
    psc_iov_t iov = {in, len};
    psc_recv_args_t args = {.source = source,
                            .context = context,
                            .tag = 7,
                            .iov = &iov,
                            .n_iov = 1};
    psc_request_t *request = NULL;

    memset(in, 0, len);
    memset(result, 0, sizeof *result);
    result->status = api->recv(side->worker, &args, result, &request);
    return request;
}

static void exchange(pair_t *pair, uint32_t context, size_t len)
{
    psc_request_t *send = send_in(&pair->a, context, len);
    psc_result_t result;
    psc_request_t *recv =
        recv_in(&pair->b, pair->b.conn, context, len, &result);

    if (recv)
        result = finish(pair, recv);
    check(result.status == PSC_OK && filled(in, len, 1));
    sent(pair, send);
}

static void begin(pair_t *pair)
{
    fill(out, LONG, 1);
    pair_open(pair);
    exchange(pair, CONTEXT, 8);
}

/* Nothing is left of contexts but of CONTEXT. */
static void expect_nothing_left(pair_t *pair)
{
    const psc_matching_t *matching = &pair->b.worker->matching;

    check(matching->contexts.n == 1 && matching->open.n == 0);
    check(pair->b.conn->queues->n <= 1);
    check(psc_table_chains(&matching->contexts) <= 8);
    check(psc_table_chains(pair->b.conn->queues) <= 8);
    check(pair->b.worker->budget.kept == 0 && pair->b.conn->rts_in == 0);
}

/* ---- closing ---- */

/* All messages of a number that is closed, in both numbers and all classes. */
CASE(closed_messages_are_dropped)
{
    psc_request_t *sends[8];
    pair_t pair;

    begin(&pair);
    check(psc_worker_open_context(pair.b.worker, NUMBER) == PSC_OK);
    for (int late = 0; late < 2; late++) {
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t id = NUMBER + i % 2 + i / 2 * PSC_CONTEXT_OBJECTS;

            sent(&pair, send_in(&pair.a, id, 8));
            sends[i] = send_in(&pair.a, id, LONG);
        }
        settle(&pair);
        if (!late)
            psc_worker_close_context(pair.b.worker, NUMBER);
        for (int i = 0; i < 8; i++) {
            check(sends[i]);
            check(finish(&pair, sends[i]).status == PSC_ERR_CLOSED);
        }
        settle(&pair);
        expect_nothing_left(&pair);
        exchange(&pair, CONTEXT, LONG);
    }
    pair_close(&pair);
}

CASE(closed_receives_end)
{
    psc_request_t *recvs[6], *probe = NULL;
    psc_recv_args_t args = {.context = NUMBER, .tag = 7};
    psc_result_t result;
    pair_t pair;

    begin(&pair);
    check(psc_worker_open_context(pair.b.worker, NUMBER) == PSC_OK);
    for (int i = 0; i < 6; i++)
        recvs[i] = recv_in(&pair.b, i % 3 == 2 ? NULL : pair.b.conn,
                           NUMBER + i / 3, i % 3 ? LONG : 8, &result);
    check(api->probe(pair.b.worker, &args, &result, &probe) == PSC_INPROGRESS);
    settle(&pair);
    psc_worker_close_context(pair.b.worker, NUMBER);
    for (int i = 0; i < 6; i++)
        check(finish(&pair, recvs[i]).status == PSC_ERR_CLOSED);
    check(finish(&pair, probe).status == PSC_ERR_CLOSED);
    settle(&pair);
    expect_nothing_left(&pair);
    for (int i = 0; i < 4; i++) {
        check(!recv_in(&pair.b, i % 2 ? NULL : pair.b.conn, NUMBER,
                       i / 2 ? LONG : 8, &result));
        check(result.status == PSC_ERR_CLOSED);
    }
    expect_nothing_left(&pair);
    pair_close(&pair);
}

/* A receive that has matched its message goes on; one that has not ends. */
CASE(closed_while_a_message_moves)
{
    pair_t pair;

    begin(&pair);
    for (uint32_t passes = 0; passes < 12; passes++) {
        uint32_t number = NUMBER + 2 * passes;
        psc_request_t *send, *recv;
        psc_status_t status;
        psc_result_t result;

        check(psc_worker_open_context(pair.b.worker, number) == PSC_OK);
        recv = recv_in(&pair.b, pair.b.conn, number, LONG, &result);
        send = send_in(&pair.a, number, LONG);
        for (uint32_t i = 0; i < passes; i++)
            pair_progress(&pair);
        psc_worker_close_context(pair.b.worker, number);
        status = finish(&pair, recv).status;
        check(status == PSC_ERR_CLOSED ||
              (status == PSC_OK && filled(in, LONG, 1)));
        if (send)
            finish(&pair, send);
        settle(&pair);
        expect_nothing_left(&pair);
    }
    pair_close(&pair);
}

/* ---- collectives ---- */

static psc_group_t *group_of(side_t *side, int rank)
{
    psc_group_args_t args = {.context = NUMBER + 1, .rank = rank, .size = 2};
    psc_group_t *group;

    check(api->group_create(side->worker, &args, &group) == PSC_OK);
    check(api->group_connect(group, 1 - rank, side->conn) == PSC_OK);
    return group;
}

static psc_status_t never_called(const void *lower, void *higher, uint64_t n,
                                 void *arg)
{
    (void)lower, (void)higher, (void)n, (void)arg;
    check(false);
    return PSC_OK;
}

static psc_request_t *start(psc_group_t *group, psc_coll_t coll,
                            psc_status_t expected)
{
    static uint64_t sum[2];
    psc_coll_args_t args = {.coll = coll,
                            .send = out,
                            .recv = &sum[coll == PSC_COLL_REDUCE],
                            .size = 8,
                            .count = coll != PSC_COLL_BARRIER,
                            .combine = never_called};
    psc_request_t *request = NULL;

    check(api->coll_start(group, &args, &request) == expected);
    return request;
}

/* Rank 0 has the operand of rank 1, but its program does not call the function
 * of the reduction; the barrier waits for rank 1. */
CASE(closed_collectives_end)
{
    psc_request_t *reduce, *barrier;
    psc_group_t *group, *other;
    pair_t pair;

    begin(&pair);
    check(psc_worker_open_context(pair.b.worker, NUMBER) == PSC_OK);
    group = group_of(&pair.b, 0);
    other = group_of(&pair.a, 1);
    reduce = start(group, PSC_COLL_REDUCE, PSC_INPROGRESS);
    barrier = start(group, PSC_COLL_BARRIER, PSC_INPROGRESS);
    sent(&pair, start(other, PSC_COLL_REDUCE, PSC_OK));
    settle(&pair);
    check(reduce->state == PSC_REQUEST_MATCHED);
    psc_worker_close_context(pair.b.worker, NUMBER);
    check(finish(&pair, reduce).status == PSC_ERR_CLOSED);
    check(finish(&pair, barrier).status == PSC_ERR_CLOSED);
    check(!start(group, PSC_COLL_BARRIER, PSC_ERR_CLOSED));
    api->group_destroy(group);
    api->group_destroy(other);
    settle(&pair);
    expect_nothing_left(&pair);
    pair_close(&pair);
}

CASE(closed_numbers_leave_nothing)
{
    pair_t pair;

    begin(&pair);
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t number = NUMBER + 2 * i;

        check(psc_worker_open_context(pair.b.worker, number) == PSC_OK);
        exchange(&pair, number, 8);
        sent(&pair, send_in(&pair.a, number + 1, 8));
        pair_progress(&pair);
        psc_worker_close_context(pair.b.worker, number);
    }
    settle(&pair);
    expect_nothing_left(&pair);
    check(psc_requests_used(&pair.b.worker->requests) == 0);
    pair_close(&pair);
}

/* ---- numbers that are not open ---- */

/* A queue of such a number lives as long as its message. */
CASE(unopened_numbers_leave_nothing)
{
    psc_result_t result;
    pair_t pair;

    begin(&pair);
    for (uint32_t i = 0; i < FEW; i++)
        sent(&pair, send_in(&pair.a, NUMBER + 1000 * i, 8));
    settle(&pair);
    check(pair.b.worker->matching.contexts.n == FEW + 1);
    for (uint32_t i = 0; i < FEW; i++) {
        check(!recv_in(&pair.b, i % 2 ? NULL : pair.b.conn, NUMBER + 1000 * i,
                       8, &result));
        check(result.status == PSC_OK);
    }
    expect_nothing_left(&pair);
    pair_close(&pair);
}

CASE(unopened_numbers_end_with_the_connection)
{
    psc_conn_t *a, *b;
    pair_t pair;

    begin(&pair);
    pair_join(&pair, &a, &b);
    for (uint32_t i = 0; i < 100; i++) {
        side_t side = {.worker = pair.a.worker, .conn = a};

        sent(&pair, send_in(&side, NUMBER + i, 8));
        if (i % 10 == 0)
            api->request_free(send_in(&side, NUMBER + i, LONG));
    }
    settle(&pair);
    check(pair.b.worker->matching.contexts.n == 101);
    psc_conn_destroy(b);
    settle(&pair);
    expect_nothing_left(&pair);
    psc_conn_destroy(a);
    pair_close(&pair);
}

/* Messages that have come before the number is opened are received, those of
 * numbers that can never be opened are dropped. */
CASE(numbers_are_opened_in_order)
{
    psc_result_t result;
    pair_t pair;

    begin(&pair);
    for (uint32_t i = 0; i < 2; i++)
        sent(&pair, send_in(&pair.a, NUMBER + 8 + i, 8));
    settle(&pair);
    check(psc_worker_open_context(pair.b.worker, NUMBER + 8) == PSC_OK);
    for (uint32_t i = 0; i < 2; i++) {
        check(!recv_in(&pair.b, pair.b.conn, NUMBER + 8 + i, 8, &result));
        check(result.status == PSC_OK && filled(in, 8, 1));
    }
    sent(&pair, send_in(&pair.a, NUMBER + 6, 8));
    sent(&pair, send_in(&pair.a, NUMBER + 10, 8));
    settle(&pair);
    check(psc_match_context(pair.b.worker, NUMBER + 10, false));
    check(!psc_match_context(pair.b.worker, NUMBER + 6, false));
    pair_close(&pair);
}

/* ---- searches ---- */

static uint32_t longest_chain(const psc_table_t *table)
{
    uint32_t longest = 0;

    for (uint32_t i = 0; i < psc_table_chains(table); i++) {
        uint32_t n = 0;

        for (psc_entry_t *at = table->chains[i]; at; at = at->next)
            n++;
        longest = n > longest ? n : longest;
    }
    return longest;
}

CASE(contexts_are_found_in_few_steps)
{
    pair_t pair;

    begin(&pair);
    for (uint32_t i = 0; i < MANY; i++) {
        check(psc_worker_open_context(pair.b.worker, NUMBER + 2 * i) == PSC_OK);
        exchange(&pair, NUMBER + 2 * i, 8);
    }
    check(pair.b.worker->matching.contexts.n > MANY);
    check(longest_chain(&pair.b.worker->matching.contexts) <= 20);
    check(longest_chain(&pair.b.worker->matching.open) <= 20);
    check(longest_chain(pair.b.conn->queues) <= 20);
    pair_close(&pair);
}
