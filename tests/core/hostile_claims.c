/* A peer that lies about the receives that it was told of, or that it tells of
 * (tuple_am.h). */
#include "claims.h"
#include "hostile.h"

/* b shows a receive of MIN bytes with tag 5, in entry 0, as generation 1. */
typedef struct lie {
    psc_wire_claim_t claim;
    size_t len;
    int times; /* how often it is said; the last one is a lie */
} lie_t;

static const lie_t lies[] = {
    {{{.context = CONTEXT, .tag = 5}, 1, 1}, MIN, 1},
    {{{.context = CONTEXT, .tag = 5}, 0, 2}, MIN, 1},
    {{{.context = CONTEXT, .tag = 5}, 0, 0}, MIN, 1},
    {{{.context = CONTEXT, .tag = 5}, 1, 0}, MIN, 1},
    {{{.context = CONTEXT, .tag = 5}, PSC_EXPOSED_MAX, 1}, MIN, 1},
    {{{.context = CONTEXT, .tag = 5}, UINT32_MAX, UINT64_MAX}, MIN, 1},
    {{{.context = CONTEXT, .tag = 5}, 0, 1}, MIN + 1, 1},
    {{{.context = CONTEXT, .tag = 6}, 0, 1}, MIN, 1},
    {{{.context = CONTEXT, .tag = 5 + (1u << 31)}, 0, 1}, MIN, 1},
    {{{.context = PSC_CONTEXT_AM, .tag = 5}, 0, 1}, MIN, 1},
    {{{.context = CONTEXT, .tag = 5}, 0, 1}, MIN, 2},
    {{{.context = CONTEXT, .tag = 5}, 0, 1}, 10, 2},
};

static void refused(pair_t *pair, psc_request_t *recv)
{
    until(pair, psc_conn_state(pair->b.conn) == PSC_CONN_FAILED);
    check(pair->b.conn->status == PSC_ERR_PROTOCOL);
    until(pair, done(recv));
    api->request_free(recv);
    hostile_part(pair);
}

static bool open_lies(pair_t *pair, psc_request_t **recv_p, void *in)
{
    open_tuples(pair);
    psc_worker_log_to(pair->a.worker, -1, 0);
    psc_worker_log_to(pair->b.worker, -1, 0);
    *recv_p = expect_told(pair, in, MIN, 5);
    if (tells(pair))
        return true;
    check(api->cancel(*recv_p) == PSC_OK);
    api->request_free(*recv_p);
    pair_close(pair);
    return false;
}

CASE(claims_that_lie)
{
    char in[MIN] = {0}, out[MIN + 1];
    psc_request_t *recv;
    pair_t pair;

    memset(out, 1, sizeof out);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        if (!open_lies(&pair, &recv, in))
            return;
        for (int n = 0; n < lies[i].times; n++)
            hostile_speak(pair.a.conn, PSC_WIRE_CLAIM, &lies[i].claim,
                          sizeof lies[i].claim, out, lies[i].len);
        refused(&pair, recv);
        if (lies[i].times == 1)
            check(in[0] == 0);
    }
}

/* b's receive was not withdrawn, or b never had such a receive. */
CASE(answers_that_lie)
{
    static const psc_wire_conceal_t answers[] = {
        {.entry = 0, .generation = 1},
        {.entry = 0, .generation = 2},
        {.entry = 3, .generation = 0},
        {.entry = PSC_EXPOSED_MAX, .generation = 1}};
    char in[MIN];
    psc_request_t *recv;
    pair_t pair;

    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        if (!open_lies(&pair, &recv, in))
            return;
        hostile_speak(pair.a.conn, PSC_WIRE_CONCEALED, &answers[i],
                      sizeof answers[i], NULL, 0);
        refused(&pair, recv);
    }
}

/* b is told of receives that there cannot be; the last one is a lie. */
CASE(receives_that_lie)
{
    static const psc_wire_expose_t shown[][2] = {
        {{.entry = PSC_EXPOSED_MAX, .generation = 1}},
        {{.entry = UINT32_MAX, .generation = 1}},
        {{.entry = 1, .generation = 0}},
        {{.entry = 1, .generation = 9}, {.entry = 1, .generation = 10}},
        {{.entry = 1, .generation = 9}, {.entry = 2, .generation = 9}},
        {{.entry = 1, .generation = 9}, {.entry = 2, .generation = 8}},
    };

    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        char in[MIN];
        psc_request_t *recv;
        pair_t pair;

        if (!open_lies(&pair, &recv, in))
            return;
        hostile_speak(pair.a.conn, PSC_WIRE_EXPOSE, &shown[i][0],
                      sizeof shown[i][0], NULL, 0);
        if (shown[i][1].generation)
            hostile_speak(pair.a.conn, PSC_WIRE_EXPOSE, &shown[i][1],
                          sizeof shown[i][1], NULL, 0);
        refused(&pair, recv);
    }
}
