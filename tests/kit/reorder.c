/* Numbers in any order, some repeatedly, some too far ahead, are taken once and
 * in order, also when they wrap around to 0. */
#include <stdbool.h>

#include "kit.h"
#include "pscompy/transport/kit/reorder.h"

#define ITEMS 400u

static int items[ITEMS];

/* The verdict to expect, given the numbers put and taken so far. */
static psc_reorder_verdict_t expected_verdict(const bool *put, uint32_t at,
                                              uint32_t taken, uint32_t limit)
{
    if (at >= taken + limit)
        return PSC_REORDER_BEYOND;
    if (at < taken || put[at])
        return PSC_REORDER_DUPLICATE;
    return at == taken ? PSC_REORDER_NEXT : PSC_REORDER_EARLY;
}

static void check_bits(const psc_reorder_t *order, const bool *put,
                       uint32_t taken)
{
    uint64_t bits = psc_reorder_early(order);

    for (uint32_t i = 0; i < 64; i++)
        CHECK((bits >> i & 1) == (taken + 1 + i < ITEMS && put[taken + 1 + i]));
}

static void any_order(uint64_t *random, uint32_t first, uint32_t limit)
{
    bool put[ITEMS + 200] = {false};
    psc_reorder_t order = {
        .size = psc_reorder_size(limit), .limit = limit, .expected = first};
    uint32_t taken = 0;

    order.held = calloc(order.size, sizeof(*order.held));
    CHECK(order.held);
    while (taken < ITEMS) {
        uint32_t back = taken < 5 ? taken : 5;
        uint32_t at = taken - back + random_below(random, limit + back + 3);

        if (at < ITEMS) {
            psc_reorder_verdict_t verdict =
                psc_reorder_put(&order, first + at, &items[at]);

            CHECK(verdict == expected_verdict(put, at, taken, limit));
            put[at] |= verdict <= PSC_REORDER_EARLY;
        }
        check_bits(&order, put, taken);
        if (random_below(random, 3) == 0 && put[taken]) {
            void *item = psc_reorder_take(&order);

            CHECK(item == &items[taken]);
            if (random_below(random, 4)) {
                taken++;
            } else {
                psc_reorder_undo(&order, item);
                CHECK(psc_reorder_next(&order) == item);
            }
        } else if (!put[taken]) {
            CHECK(!psc_reorder_take(&order));
            /* the item is used without being held */
            if (random_below(random, 8) == 0) {
                psc_reorder_pass(&order);
                put[taken++] = true;
            }
        }
        CHECK(order.expected == first + taken);
    }
    CHECK(order.n_held == 0 && !psc_reorder_drop(&order));
    free(order.held);
}

static void emptied(uint64_t *random)
{
    void *held[16] = {NULL};
    psc_reorder_t order = {held, 16, 16, random_below(random, 1000), 0};
    unsigned n = 0, dropped = 0;

    for (uint32_t i = 0; i < 16; i++)
        if (random_below(random, 2)) {
            psc_reorder_put(&order, order.expected + i, &items[i]);
            n++;
        }
    while (psc_reorder_drop(&order))
        dropped++;
    CHECK(n == dropped && order.n_held == 0);
    for (unsigned i = 0; i < 16; i++)
        CHECK(!held[i]);
}

/* argv: seed, rounds */
int main(int argc, char **argv)
{
    uint64_t random = argc > 1 ? strtoull(argv[1], NULL, 10) + 1 : 1;
    unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 100;

    for (unsigned i = 0; i < rounds / 10; i++) {
        uint32_t near_end = 0u - random_below(&random, ITEMS);
        uint32_t middle = (1u << 31) - random_below(&random, ITEMS);

        any_order(&random,
                  i % 3 == 0   ? near_end
                  : i % 3 == 1 ? middle
                               : 0,
                  1 + random_below(&random, i % 2 ? 8 : 100));
        emptied(&random);
    }
    return 0;
}
