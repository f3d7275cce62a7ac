/* Cases: messages of all kinds and sizes, back-pressure, destinations, held
 * descriptors. */
#include "harness.h"

static const size_t sizes[] = {
    0,     1,     2,     7,     8,     63,      64,
    255,   1000,  1024,  4095,  4096,  4097,    8192,
    16384, 32768, 65535, 65536, 65537, 1 << 20, (8 << 20) + 3};

#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define FLOOD_BYTES (1ull << 28) /* more than all buffers together hold */

/* Sends every size up to the longest of this kind, in both directions. */
static void exchange_kind(ct_kind_t kind)
{
    ct_pair_t pair;
    size_t longest, pieces;

    ct_pair_up(&pair);
    longest = ct_longest(pair.a, kind);
    pieces = kind == CT_SHORT ? 1 : pair.a->attr.max_iov;
    for (size_t i = 0; i < N_SIZES && sizes[i] <= longest; i++) {
        ct_exchange(&pair, &pair.x, &pair.y, kind, sizes[i], 1);
        ct_exchange(&pair, &pair.y, &pair.x, kind, sizes[i], pieces);
    }
    if (longest <= sizes[N_SIZES - 1]) {
        ct_exchange(&pair, &pair.x, &pair.y, kind, longest - 1, 1);
        ct_exchange(&pair, &pair.x, &pair.y, kind, longest, pieces);
    }
    ct_pair_down(&pair);
}

CASE(exchange_bcopy)
{
    exchange_kind(CT_BCOPY);
}

CASE(exchange_short, .caps = PSC_CAP_AM_SHORT)
{
    exchange_kind(CT_SHORT);
}

CASE(exchange_zcopy, .caps = PSC_CAP_AM_ZCOPY)
{
    exchange_kind(CT_ZCOPY);
}

CASE(too_long_is_refused)
{
    ct_pair_t pair;
    ct_send_t send;

    ct_pair_up(&pair);
    ct_check(ct_send_try(&pair.x, CT_BCOPY, ct_longest(pair.a, CT_BCOPY) + 1, 1,
                         &send) == PSC_ERR_INVALID,
             "%s", psc_status_string(send.status));
    free(send.buffer);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 1, 1);
    ct_pair_down(&pair);
}

/* Sends without progress of the receiver until there is no room. */
static void flood(ct_pair_t *pair, ct_kind_t kind, size_t len, ct_send_t *sends,
                  size_t max, size_t *n_p)
{
    uint64_t bytes = 0;
    psc_status_t status;

    for (*n_p = 0; *n_p < max && bytes < FLOOD_BYTES; bytes += len) {
        status = ct_send_try(&pair->x, kind, len, 2, &sends[*n_p]);
        if (status == PSC_ERR_NO_RESOURCE) {
            free(sends[*n_p].buffer);
            return;
        }
        ct_check(status >= 0, "%s", psc_status_string(status));
        ++*n_p;
    }
    ct_check(false, "%zu messages of %zu bytes and still room", *n_p, len);
}

#define FLOOD_MAX 40000

static void back_pressure(ct_kind_t kind, size_t len)
{
    ct_pair_t pair;
    ct_send_t *sends = calloc(FLOOD_MAX, sizeof(*sends));
    size_t n;

    ct_pair_up(&pair);
    for (int round = 0; round < 3; round++) {
        flood(&pair, kind, len, sends, FLOOD_MAX, &n);
        printf("no room after %zu messages of %zu bytes\n", n, len);
        for (size_t i = 0; i < n; i++)
            ct_send_finish(&pair, &sends[i]);
        ct_until(&pair, pair.y.received == pair.x.sent);
        ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    }
    free(sends);
    ct_pair_down(&pair);
}

CASE(back_pressure_bcopy)
{
    ct_side_t side;
    size_t longest;

    ct_side_open(&side);
    longest = ct_longest(&side, CT_BCOPY);
    ct_side_close(&side);
    back_pressure(CT_BCOPY, longest);
}

CASE(back_pressure_odd)
{
    back_pressure(CT_BCOPY, 999);
}

CASE(back_pressure_zcopy, .caps = PSC_CAP_AM_ZCOPY)
{
    back_pressure(CT_ZCOPY, (1 << 20) + 1);
}

/* Messages of random kinds keep their order. */
CASE(kinds_keep_order)
{
    ct_pair_t pair;
    ct_send_t *sends = calloc(600, sizeof(*sends));
    unsigned dice = 99;

    ct_pair_up(&pair);
    for (int i = 0; i < 600; i++) {
        ct_kind_t kind = (ct_kind_t)((dice >> 16) % 3);
        uint64_t need = kind == CT_SHORT   ? PSC_CAP_AM_SHORT
                        : kind == CT_ZCOPY ? PSC_CAP_AM_ZCOPY
                                           : 0;
        size_t longest;

        dice = dice * 1103515245 + 12345;
        if (!ct_side_can(pair.a, need))
            kind = CT_BCOPY;
        longest = ct_longest(pair.a, kind);
        if (longest > 300000)
            longest = 300000;
        ct_send(&pair, &pair.x, kind, (dice >> 8) % (longest + 1), 3,
                &sends[i]);
    }
    for (int i = 0; i < 600; i++)
        ct_send_finish(&pair, &sends[i]);
    ct_until(&pair, pair.y.received == pair.x.sent);
    free(sends);
    ct_pair_down(&pair);
}

/* Sends in both directions at once, each more than the fabric buffers. */
CASE(both_ways_at_once, .caps = PSC_CAP_AM_ZCOPY)
{
    ct_pair_t pair;
    ct_send_t there[6], back[6];

    ct_pair_up(&pair);
    for (int i = 0; i < 6; i++) {
        ct_send(&pair, &pair.x, CT_ZCOPY, 12 << 20, 1, &there[i]);
        ct_send(&pair, &pair.y, CT_ZCOPY, 12 << 20, 1, &back[i]);
    }
    for (int i = 0; i < 6; i++) {
        ct_send_finish(&pair, &there[i]);
        ct_send_finish(&pair, &back[i]);
    }
    ct_until(&pair, pair.y.received == 6 && pair.x.received == 6);
    ct_pair_down(&pair);
}

/* Destinations of am_begin: scattered, too short, none. */
static void landing(ct_landing_t landing)
{
    ct_pair_t pair;
    uint64_t begun;
    ct_kind_t kind;

    ct_pair_up(&pair);
    kind = ct_side_can(pair.a, PSC_CAP_AM_ZCOPY) ? CT_ZCOPY : CT_BCOPY;
    pair.y.landing = landing;
    for (size_t i = 0; i < N_SIZES && sizes[i] <= ct_longest(pair.a, kind);
         i++) {
        ct_exchange(&pair, &pair.x, &pair.y, kind, sizes[i], 2);
        ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, i, 1);
    }
    begun = pair.y.begun;
    ct_pair_down(&pair);
    if (begun == 0)
        ct_skip("%s never asks where a payload goes", ct_ops->name);
    printf("%llu messages came by am_begin\n", (unsigned long long)begun);
}

CASE(landing_scattered)
{
    landing(CT_SCATTER);
}

CASE(landing_cut_short)
{
    landing(CT_HALF);
}

CASE(landing_nowhere)
{
    landing(CT_NOWHERE);
}

/* The protocol withdraws the memory in the middle of a payload: the rest is
 * discarded, and later messages are received correctly. */
#define EARLY 30

CASE(landing_taken_back)
{
    unsigned taken = 0;
    ct_kind_t kind;
    ct_pair_t pair;
    size_t longest;

    ct_pair_up(&pair);
    kind = ct_side_can(pair.a, PSC_CAP_AM_ZCOPY) ? CT_ZCOPY : CT_BCOPY;
    longest =
        ct_longest(pair.a, kind) < 4 << 20 ? ct_longest(pair.a, kind) : 4 << 20;
    pair.y.landing = CT_TAKEN;
    for (unsigned i = 0; i < 10; i++) {
        ct_send_t early[EARLY], send;

        for (unsigned j = 0; j < EARLY; j++) /* one pass is not enough */
            ct_send(&pair, &pair.x, CT_BCOPY, 100, 1, &early[j]);
        ct_send(&pair, &pair.x, kind, longest, 2, &send);
        ct_until(&pair, (taken += ct_end_take(&pair.y),
                         pair.y.received == pair.x.sent));
        for (unsigned j = 0; j < EARLY; j++)
            ct_send_finish(&pair, &early[j]);
        ct_send_finish(&pair, &send);
        ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 900, 1);
    }
    ct_pair_down(&pair);
    if (taken == 0)
        ct_skip("%s delivers the longest message in one turn", ct_ops->name);
    printf("%u of 10 payloads were taken back\n", taken);
}

/* Descriptors that the protocol holds keep their bytes; releasing them makes
 * room again. */
CASE(held_descriptors)
{
    ct_pair_t pair;
    ct_send_t *sends = calloc(FLOOD_MAX, sizeof(*sends));
    size_t n, held;

    ct_pair_up(&pair);
    pair.y.hold = true;
    flood(&pair, CT_BCOPY, 700, sends, FLOOD_MAX, &n);
    for (size_t i = 0; i < n; i++)
        ct_send_finish(&pair, &sends[i]);
    free(sends);
    for (int i = 0; i < 1000; i++)
        ct_pair_progress(&pair);
    held = pair.y.n_held;
    pair.y.hold = false;
    ct_end_release_held(&pair.y);
    ct_until(&pair, pair.y.received == pair.x.sent);
    for (int i = 0; i < 300; i++)
        ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 700, 1);
    ct_pair_down(&pair);
    if (held == 0)
        ct_skip("%s has no descriptors to hold", ct_ops->name);
    printf("%zu descriptors were held\n", held);
}

/* Answers from inside am_recv. */
static void answer(ct_end_t *end)
{
    ct_send_t send;
    ct_end_t *from = end->on_message_arg;

    if (end->received < 200 &&
        ct_send_try(from, CT_BCOPY, 50, 1, &send) != PSC_OK)
        ct_check(false, "an answer of 50 bytes finds no room");
    if (end->received < 200)
        free(send.buffer);
}

CASE(answer_inside_upcall)
{
    ct_pair_t pair;
    ct_send_t send;

    ct_pair_up(&pair);
    pair.x.on_message = pair.y.on_message = answer;
    pair.x.on_message_arg = &pair.x;
    pair.y.on_message_arg = &pair.y;
    ct_send(&pair, &pair.x, CT_BCOPY, 50, 1, &send);
    ct_send_finish(&pair, &send);
    ct_until(&pair, pair.y.received == 200);
    ct_pair_down(&pair);
}
