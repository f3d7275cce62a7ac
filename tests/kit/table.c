/* The table of the kit, compared with an array. Arguments: seed, rounds. */
#include "kit.h"
#include "pscompy/transport/kit/table.h"

enum { NUMBERS = 500 };

static psc_entry_t entries[NUMBERS];
static bool present[NUMBERS];
static psc_table_t table;

/* Numbers that differ in high bits only, too. */
static uint32_t number_of(uint32_t i)
{
    return i % 2 ? i << 20 : i;
}

static void check_all(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < NUMBERS; i++) {
        CHECK(psc_table_find(&table, number_of(i)) ==
              (present[i] ? &entries[i] : NULL));
        n += present[i];
    }
    psc_list_for_each(entry, &table.all, psc_entry_t, link)
        n--;
    CHECK(n == 0);
    CHECK(psc_table_chains(&table) <= 4 ||
          psc_table_chains(&table) <= 16 * table.n);
}

int main(int argc, char **argv)
{
    uint64_t state = argc > 1 ? strtoull(argv[1], NULL, 10) + 1 : 1;
    int rounds = argc > 2 ? atoi(argv[2]) : 1000;

    psc_table_init(&table, state * 0x9e3779b97f4a7c15);
    for (int round = 0; round < rounds; round++) {
        /* the table grows and shrinks in turn */
        uint32_t i = random_below(&state, NUMBERS);
        bool grows = round / 600 % 2 == 0;

        if (!present[i] && (grows || random_below(&state, 10) == 0))
            psc_table_add(&table, &entries[i], number_of(i));
        else if (present[i] && (!grows || random_below(&state, 10) == 0))
            psc_table_remove(&table, &entries[i]);
        else
            continue;
        present[i] = !present[i];
        if (round % 16 == 0)
            check_all();
    }
    for (uint32_t i = 0; i < NUMBERS; i++) {
        if (present[i])
            psc_table_remove(&table, &entries[i]);
    }
    CHECK(table.n == 0 && psc_table_chains(&table) == 4);
    psc_table_clear(&table);
    return 0;
}
