/* A table: objects that are found by a number in constant time, and stand in a
 * list of all. Hashing is by multiplication with a random factor, because peers
 * choose some of the numbers (Dietzfelbinger et al., J. Algorithms 1997). The
 * memory follows the number of objects. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "list.h"

#define PSC_TABLE_FEW_BITS                                                     \
    2u /* log2 of the number of chains without memory                          \
        */

/* An object's member by which it is in a table. */
typedef struct psc_entry {
    psc_link_t link; /* in psc_table_t.all */
    struct psc_entry *next; /* the next entry of the same chain */
    uint32_t number;
} psc_entry_t;

typedef struct psc_table {
    psc_list_t all; /* linked by psc_entry_t.link, in the order of adding */
    psc_entry_t **chains;
    uint64_t factor; /* odd */
    uint32_t shift; /* 64 less log2 of the number of chains */
    uint32_t n; /* number of entries */
    psc_entry_t *few[1u << PSC_TABLE_FEW_BITS]; /* the first chains */
} psc_table_t;

/* Returns the number of chains. */
static inline uint32_t psc_table_chains(const psc_table_t *table)
{
    return 1u << (64 - table->shift);
}

/* The table must not move in memory afterwards. */
static inline void psc_table_init(psc_table_t *table, uint64_t seed)
{
    *table = (psc_table_t){.chains = table->few,
                           .factor = seed | 1,
                           .shift = 64 - PSC_TABLE_FEW_BITS};
    psc_list_init(&table->all);
}

static inline psc_entry_t **psc_table_chain(const psc_table_t *table,
                                            uint32_t number)
{
    return &table->chains[number * table->factor >> table->shift];
}

/* Returns the entry with this number, or NULL. */
static inline psc_entry_t *psc_table_find(const psc_table_t *table,
                                          uint32_t number)
{
    psc_entry_t *entry = *psc_table_chain(table, number);

    while (entry && entry->number != number)
        entry = entry->next;
    return entry;
}

/* Distribute the entries to 2^bits chains. If memory is short, the chains stay
 * as they are, and searches are slower. */
static inline void psc_table_resize(psc_table_t *table, uint32_t bits)
{
    psc_entry_t **old = table->chains;
    psc_entry_t **made =
        bits == PSC_TABLE_FEW_BITS ? table->few : malloc(sizeof *made << bits);

    if (!made)
        return;
    table->chains = made;
    table->shift = 64 - bits;
    for (uint32_t i = 0; i < psc_table_chains(table); i++)
        made[i] = NULL;
    psc_list_for_each(entry, &table->all, psc_entry_t, link) {
        psc_entry_t **chain = psc_table_chain(table, entry->number);

        entry->next = *chain;
        *chain = entry;
    }
    if (old != table->few)
        free(old);
}

/* Add an entry whose number no other entry has. */
static inline void psc_table_add(psc_table_t *table, psc_entry_t *entry,
                                 uint32_t number)
{
    psc_entry_t **chain;

    entry->number = number;
    if (table->n >= psc_table_chains(table))
        psc_table_resize(table, 64 - table->shift + 1);
    chain = psc_table_chain(table, number);
    entry->next = *chain;
    *chain = entry;
    psc_list_push(&table->all, &entry->link);
    table->n++;
}

static inline void psc_table_remove(psc_table_t *table, psc_entry_t *entry)
{
    psc_entry_t **at = psc_table_chain(table, entry->number);

    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    psc_list_remove(&entry->link);
    table->n--;
    if (table->chains != table->few && table->n < psc_table_chains(table) / 8)
        psc_table_resize(table, 64 - table->shift - 1);
}

/* Free the memory of a table without entries. */
static inline void psc_table_clear(psc_table_t *table)
{
    if (table->chains != table->few)
        free(table->chains);
    table->chains = table->few;
    table->shift = 64 - PSC_TABLE_FEW_BITS;
}
