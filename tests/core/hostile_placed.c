/* A peer that lies about the receives that it was told of, or that it tells of
 * (tuple.h). */
#include "hostile.h"
#include "placed.h"

/* b shows a receive of MIN bytes with tag 5, in entry 0, as generation 1. */
typedef struct lie {
    psc_wire_placed_t placed;
    int times; /* how often it is said; the last one is a lie */
} lie_t;

static const lie_t lies[] = {
    {{{.context = CONTEXT, .tag = 5}, 1, 1, MIN}, 1},
    {{{.context = CONTEXT, .tag = 5}, 0, 2, MIN}, 1},
    {{{.context = CONTEXT, .tag = 5}, 0, 0, MIN}, 1},
    {{{.context = CONTEXT, .tag = 5}, 1, 0, MIN}, 1},
    {{{.context = CONTEXT, .tag = 5}, PSC_EXPOSED_MAX, 1, MIN}, 1},
    {{{.context = CONTEXT, .tag = 5}, UINT32_MAX, UINT64_MAX, MIN}, 1},
    {{{.context = CONTEXT, .tag = 5}, 0, 1, MIN + 1}, 1},
    {{{.context = CONTEXT, .tag = 6}, 0, 1, MIN}, 1},
    {{{.context = CONTEXT, .tag = 5 + (1u << 31)}, 0, 1, MIN}, 1},
    {{{.context = PSC_CONTEXT_AM, .tag = 5}, 0, 1, MIN}, 1},
    {{{.context = CONTEXT, .tag = 5}, 0, 1, MIN}, 2},
    {{{.context = CONTEXT, .tag = 5}, 0, 1, 10}, 2},
};

static void refused(pair_t *pair, psc_request_t *recv)
{
    until(pair, psc_conn_state(pair->b.conn) == PSC_CONN_FAILED);
    check(pair->b.conn->status == PSC_ERR_PROTOCOL);
    until(pair, done(recv));
    api->request_free(recv);
    hostile_part(pair);
}

/* Returns false, and closes the pair, if the transport does not put messages
 * into receives. */
static bool open_lies(pair_t *pair, psc_request_t **recv_p, void *in)
{
    open_tuples(pair);
    psc_worker_log_to(pair->a.worker, -1, 0);
    psc_worker_log_to(pair->b.worker, -1, 0);
    *recv_p = expect_told(pair, in, MIN, 5);
    if (places(pair))
        return true;
    cancelled(pair, *recv_p);
    api->request_free(*recv_p);
    pair_close(pair);
    return false;
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
    static const psc_wire_advertise_t advert[][2] = {
        {{.entry = PSC_EXPOSED_MAX, .generation = 1}},
        {{.entry = UINT32_MAX, .generation = 1}},
        {{.entry = 1, .generation = 0}},
        {{.entry = 1, .generation = 9}, {.entry = 1, .generation = 10}},
        {{.entry = 1, .generation = 9}, {.entry = 2, .generation = 9}},
        {{.entry = 1, .generation = 9}, {.entry = 2, .generation = 8}},
    };

    static const uint8_t key[] = {1};

    for (size_t i = 0; i < sizeof advert / sizeof *advert; i++) {
        char in[MIN];
        psc_request_t *recv;
        pair_t pair;

        if (!open_lies(&pair, &recv, in))
            return;
        hostile_speak(pair.a.conn, PSC_WIRE_ADVERTISE, &advert[i][0],
                      sizeof advert[i][0], key, sizeof key);
        if (advert[i][1].generation)
            hostile_speak(pair.a.conn, PSC_WIRE_ADVERTISE, &advert[i][1],
                          sizeof advert[i][1], key, sizeof key);
        refused(&pair, recv);
    }
}

static void say_placed(pair_t *pair, const psc_wire_placed_t *wire,
                       const void *payload, size_t more)
{
    hostile_speak(pair->a.conn, PSC_WIRE_PLACED, wire, sizeof *wire, payload,
                  more);
}

CASE(placed_that_lie)
{
    char in[MIN] = {0}, out[1] = {0};
    psc_request_t *recv;
    pair_t pair;

    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        if (!open_lies(&pair, &recv, in))
            return;
        for (int n = 0; n < lies[i].times; n++)
            say_placed(&pair, &lies[i].placed, NULL, 0);
        refused(&pair, recv);
    }
    /* a length that no receive has, and a payload */
    for (int i = 0; i < 2 && open_lies(&pair, &recv, in); i++) {
        psc_wire_placed_t wire = lies[sizeof lies / sizeof *lies - 1].placed;

        wire.len = i ? 10 : UINT64_MAX;
        say_placed(&pair, &wire, out, i);
        refused(&pair, recv);
    }
}

/* A short message has taken the receive, which was withdrawn. */
CASE(placed_too_late)
{
    static const psc_wire_placed_t wire = {
        {.context = CONTEXT, .tag = 5}, 0, 1, MIN};
    char in[MIN], out[10] = {0};
    psc_request_t *recv;
    pair_t pair;

    if (!open_lies(&pair, &recv, in))
        return;
    check(!post_send(&pair.a, out, sizeof out, 5));
    say_placed(&pair, &wire, NULL, 0);
    refused(&pair, recv);
}

/* Keys that are too long, are none, or name no memory: the message is
 * announced. */
CASE(keys_that_lie)
{
    static const uint8_t key[PSC_RKEY_MAX + 1] = {1, 2, 3};
    static const size_t lens[] = {1, 24, PSC_RKEY_MAX, 0, PSC_RKEY_MAX + 1};
    static const psc_wire_advertise_t wire = {
        .entry = 9,
        .generation = 9,
        .match = (uint64_t)CONTEXT << PSC_EXPOSED_CONTEXT_SHIFT | 6,
        .len = LEN};
    char in[MIN], *there = malloc(LEN), *out = malloc(LEN);

    fill(out, LEN, 3);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        psc_request_t *recv, *next, *send;
        psc_result_t result;
        pair_t pair;

        if (!open_lies(&pair, &recv, in))
            break;
        hostile_speak(pair.a.conn, PSC_WIRE_ADVERTISE, &wire, sizeof wire, key,
                      lens[i]);
        if (lens[i] == 0 || lens[i] > PSC_RKEY_MAX) {
            refused(&pair, recv);
            continue;
        }
        settle(&pair);
        send = post_send(&pair.b, out, LEN, 6);
        next = post_recv(&pair.a, NULL, there, LEN, 6, &result);
        expect_ok(next ? finish(&pair, next) : result, there, LEN, 3);
        sent(&pair, send);
        check(count(pair.b.worker, PSC_COUNTER_rndv_rts) == 1);
        cancelled(&pair, recv);
        api->request_free(recv);
        hostile_part(&pair);
    }
    free(there);
    free(out);
}
