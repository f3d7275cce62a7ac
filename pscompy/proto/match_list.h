/* Receives, probes or messages in order, found by their tag in constant time.
 *
 * A short list is searched from its head. A search that passes too many entries
 * that do not fit makes an index: entries that name a tag stand in buckets by a
 * hash of the tag, entries for any tag in a separate list. Each entry that is
 * added or removed splits or merges few buckets at most (linear hashing:
 * Litwin, VLDB 1980), so no operation has to move all entries, and the memory
 * follows their number. The hash has a random seed, because peers choose the
 * tags of their messages. If memory is short, searches are slower. */
#pragma once

#include <stdint.h>

#include "../core/api.h"
#include "pscompy/transport/kit/list.h"

/* Where the fields of an entry are: byte distances from its link in
 * psc_match_list_t.all. They differ between receives and messages, and between
 * the two links by which a message is an entry of two lists. */
typedef struct psc_match_shape {
    /* the entry's psc_link_t in a bucket; undefined while there is no index */
    ptrdiff_t bucket;
    ptrdiff_t tag;    /* the entry's tag, an int32_t; PSC_ANY_TAG for any */
    ptrdiff_t order;  /* the entry's order, an uint64_t; ascending in `all` */
} psc_match_shape_t;

#define PSC_MATCH_SHAPE(type, link, bucket, tag, order)                        \
    {(ptrdiff_t)offsetof(type, bucket) - (ptrdiff_t)offsetof(type, link),      \
     (ptrdiff_t)offsetof(type, tag) - (ptrdiff_t)offsetof(type, link),         \
     (ptrdiff_t)offsetof(type, order) - (ptrdiff_t)offsetof(type, link)}

typedef struct psc_match_index psc_match_index_t;

typedef struct psc_match_list {
    psc_list_t all;
    const psc_match_shape_t *shape;
    /* NULL until a search has passed too many entries */
    psc_match_index_t *index;
} psc_match_list_t;

void psc_match_list_init(psc_match_list_t *list,
                         const psc_match_shape_t *shape);
/* Free the index. The entries belong to the caller. */
void psc_match_list_clear(psc_match_list_t *list);
/* The number of buckets of the index, 0 without one. */
uint32_t psc_match_list_buckets(const psc_match_list_t *list);
/* Returns the earliest entry of a list, which is not empty, that fits this tag;
 * PSC_ANY_TAG fits all, and an entry with PSC_ANY_TAG fits every tag. Returns
 * NULL if no entry fits. */
psc_link_t *psc_match_list_search(psc_match_list_t *list, int32_t tag);
/* Enter an entry that is in `all` into the index; psc_match_index_remove takes
 * it out. */
void psc_match_index_add(psc_match_list_t *list, psc_link_t *link);
void psc_match_index_remove(psc_match_list_t *list, psc_link_t *link);
/* Add an entry at the place that its order demands. */
void psc_match_list_insert(psc_match_list_t *list, psc_link_t *link);

/* Add an entry that is later than all others. */
static inline void psc_match_list_push(psc_match_list_t *list, psc_link_t *link)
{
    psc_list_push(&list->all, link);
    if (__builtin_expect(list->index != NULL, 0))
        psc_match_index_add(list, link);
}

static inline void psc_match_list_remove(psc_match_list_t *list,
                                         psc_link_t *link)
{
    if (__builtin_expect(list->index != NULL, 0))
        psc_match_index_remove(list, link);
    psc_list_remove(link);
}
