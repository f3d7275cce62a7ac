#include "match.h"

#include <stdlib.h>
#include <sys/random.h>

/* A search that passes more entries than this makes an index. */
#define SEARCH_STEPS 8u
#define SEGMENT 64u /* number of buckets that are allocated together */
/* With more entries per bucket than this, on average, a bucket is added. */
#define BUCKET_LOAD 2u
/* With more buckets per entry than this, buckets are removed. */
#define BUCKET_SPARE 8u
/* maximum number of buckets that are merged when one entry is removed */
#define MERGES 16u

struct psc_match_index {
    uint64_t seed[2];
    psc_list_t any; /* entries with PSC_ANY_TAG, linked by `bucket` */
    uint32_t n;     /* number of entries in the buckets */
    uint32_t n_buckets;
    uint32_t mask; /* mask of hashes: the power of two >= n_buckets, minus 1 */
    uint32_t peak; /* number of entries added since the list was last empty */
    uint32_t n_segments;
    psc_list_t **segments;
};

/* ---- the fields of an entry ---- */

static void *entry_field(const psc_link_t *link, ptrdiff_t distance)
{
    return (char *)link + distance;
}

static int32_t entry_tag(const psc_match_list_t *list, const psc_link_t *link)
{
    return *(const int32_t *)entry_field(link, list->shape->tag);
}

static psc_link_t *entry_bucket(const psc_match_list_t *list, psc_link_t *link)
{
    return entry_field(link, list->shape->bucket);
}

/* Returns the link in `all` of the entry whose `bucket` this is. */
static psc_link_t *bucket_entry(const psc_match_list_t *list,
                                psc_link_t *bucket)
{
    return entry_field(bucket, -list->shape->bucket);
}

static int32_t bucket_tag(const psc_match_list_t *list,
                          const psc_link_t *bucket)
{
    return *(const int32_t *)entry_field(bucket, list->shape->tag -
                                                     list->shape->bucket);
}

/* Returns the order of the entry that an element of a list belongs to: the
 * element is the entry's `link` (shift 0) or its `bucket`. */
static uint64_t element_order(const psc_match_list_t *list,
                              const psc_link_t *element, ptrdiff_t shift)
{
    return *(const uint64_t *)entry_field(element, list->shape->order - shift);
}

static uint64_t bucket_order(const psc_match_list_t *list,
                             const psc_link_t *bucket)
{
    return element_order(list, bucket, list->shape->bucket);
}

/* ---- buckets ---- */

static psc_list_t *index_bucket(const psc_match_index_t *index, uint32_t place)
{
    return &index->segments[place / SEGMENT][place % SEGMENT];
}

/* Multiply-shift with a random factor and addend: strongly universal, so that
 * whoever does not know the seed cannot choose tags that share a bucket
 * (Dietzfelbinger, STACS 1996). */
static uint32_t index_hash(const psc_match_index_t *index, int32_t tag)
{
    return (uint32_t)((index->seed[0] * (uint32_t)tag + index->seed[1]) >> 32) &
           index->mask;
}

/* Returns the bucket for this tag. The entries of a bucket that does not exist
 * yet are in the bucket whose number lacks the highest bit. */
static psc_list_t *index_bucket_of(const psc_match_index_t *index, int32_t tag)
{
    uint32_t place = index_hash(index, tag);

    return index_bucket(
        index, place < index->n_buckets ? place : place & (index->mask >> 1));
}

/* Returns the list of the index that has the entries with this tag. */
static psc_list_t *index_list(psc_match_index_t *index, int32_t tag)
{
    return tag == PSC_ANY_TAG ? &index->any : index_bucket_of(index, tag);
}

/* Allocate SEGMENT more buckets. Returns false if memory is short. */
static bool index_add_segment(psc_match_index_t *index)
{
    uint32_t n = index->n_segments;
    psc_list_t **segments = index->segments;

    /* the array is full: its capacity is a power of two */
    if ((n & (n - 1)) == 0) {
        segments = realloc(segments, (n ? 2 * n : 1) * sizeof *segments);
        if (!segments)
            return false;
        index->segments = segments;
    }
    segments[n] = malloc(SEGMENT * sizeof **segments);
    if (!segments[n])
        return false;
    for (uint32_t i = 0; i < SEGMENT; i++)
        psc_list_init(&segments[n][i]);
    index->n_segments++;
    return true;
}

static void index_split(psc_match_list_t *list)
{
    psc_match_index_t *index = list->index;
    uint32_t place = index->n_buckets;
    psc_list_t *from, *to;

    if (place == index->n_segments * SEGMENT && !index_add_segment(index))
        return;
    if (place > index->mask)
        index->mask = 2 * index->mask + 1;
    index->n_buckets++;
    from = index_bucket(index, place & (index->mask >> 1));
    to = index_bucket(index, place);
    for (psc_link_t *at = from->next, *next; at != from; at = next) {
        next = at->next;
        if (index_hash(index, bucket_tag(list, at)) != place)
            continue;
        psc_list_remove(at);
        psc_list_push(to, at);
    }
}

static void index_merge(psc_match_list_t *list)
{
    psc_match_index_t *index = list->index;
    uint32_t place = --index->n_buckets;
    psc_list_t *from = index_bucket(index, place);
    psc_list_t *to = index_bucket(index, place & (index->mask >> 1));
    psc_link_t *at = to->next, *moved;

    while ((moved = psc_list_pop(from))) {
        while (at != to && bucket_order(list, at) < bucket_order(list, moved))
            at = at->next;
        psc_list_insert_before(at, moved);
    }
    if (place == (index->mask >> 1) + 1)
        index->mask >>= 1;
    if (place % SEGMENT == 0)
        free(index->segments[--index->n_segments]);
}

/* ---- the index ---- */

static void index_free(psc_match_index_t *index)
{
    while (index->n_segments)
        free(index->segments[--index->n_segments]);
    free(index->segments);
    free(index);
}

static psc_match_index_t *index_create(void)
{
    psc_match_index_t *index = calloc(1, sizeof *index);

    if (!index)
        return NULL;
    if (!index_add_segment(index) ||
        getrandom(index->seed, sizeof index->seed, 0) != sizeof index->seed) {
        index_free(index);
        return NULL;
    }
    psc_list_init(&index->any);
    index->n_buckets = SEGMENT;
    index->mask = SEGMENT - 1;
    return index;
}

static void index_grow(psc_match_list_t *list, int32_t tag)
{
    psc_match_index_t *index = list->index;

    index->peak++;
    if (tag == PSC_ANY_TAG)
        return;
    if (++index->n > BUCKET_LOAD * index->n_buckets)
        index_split(list);
}

/* The list is empty: free its index, if the list has had few entries since it
 * was empty before. */
static void index_settle(psc_match_list_t *list)
{
    if (list->index->peak <= SEARCH_STEPS)
        psc_match_list_clear(list);
    else
        list->index->peak = 0;
}

void psc_match_index_add(psc_match_list_t *list, psc_link_t *link)
{
    int32_t tag = entry_tag(list, link);

    psc_list_push(index_list(list->index, tag), entry_bucket(list, link));
    index_grow(list, tag);
}

void psc_match_index_remove(psc_match_list_t *list, psc_link_t *link)
{
    psc_match_index_t *index = list->index;

    psc_list_remove(entry_bucket(list, link));
    if (entry_tag(list, link) != PSC_ANY_TAG)
        index->n--;
    for (uint32_t i = 0; i < MERGES && index->n_buckets > SEGMENT &&
                         index->n_buckets > BUCKET_SPARE * index->n;
         i++)
        index_merge(list);
    if (link->next == link->prev) /* no entry is left in the list */
        index_settle(list);
}

static bool index_make(psc_match_list_t *list)
{
    list->index = index_create();
    if (!list->index)
        return false;
    for (psc_link_t *at = list->all.next; at != &list->all; at = at->next)
        psc_match_index_add(list, at);
    return true;
}

static psc_link_t *index_search(const psc_match_list_t *list, int32_t tag)
{
    psc_list_t *bucket = index_bucket_of(list->index, tag);
    psc_link_t *any = list->index->any.next, *at = bucket->next;

    while (at != bucket && bucket_tag(list, at) != tag)
        at = at->next;
    if (any == &list->index->any)
        return at == bucket ? NULL : bucket_entry(list, at);
    if (at == bucket || bucket_order(list, any) < bucket_order(list, at))
        at = any;
    return bucket_entry(list, at);
}

/* ---- the list ---- */

void psc_match_list_init(psc_match_list_t *list, const psc_match_shape_t *shape)
{
    psc_list_init(&list->all);
    list->shape = shape;
    list->index = NULL;
}

void psc_match_list_clear(psc_match_list_t *list)
{
    if (list->index)
        index_free(list->index);
    list->index = NULL;
}

uint32_t psc_match_list_buckets(const psc_match_list_t *list)
{
    return list->index ? list->index->n_buckets : 0;
}

psc_link_t *psc_match_list_search(psc_match_list_t *list, int32_t tag)
{
    psc_link_t *at = list->all.next;
    uint32_t steps = 0;

    if (tag == PSC_ANY_TAG)
        return at;
    for (; !list->index && at != &list->all; at = at->next) {
        int32_t own = entry_tag(list, at);

        if (own == tag || own == PSC_ANY_TAG)
            return at;
        if (++steps > SEARCH_STEPS)
            index_make(list);
    }
    return list->index ? index_search(list, tag) : NULL;
}

/* Insert `link` before the first later element, searching from both ends,
 * because messages that are requeued belong mostly near the head. shift: the
 * distance of the elements from the `link` members of their entries. */
static void list_insert(const psc_match_list_t *list, psc_list_t *head,
                        psc_link_t *link, ptrdiff_t shift)
{
    uint64_t own = element_order(list, link, shift);
    psc_link_t *last = head->prev, *first = head->next;

    while (last != head && element_order(list, last, shift) > own &&
           element_order(list, first, shift) < own) {
        last = last->prev;
        first = first->next;
    }
    if (last == head || element_order(list, last, shift) <= own)
        first = last->next;
    psc_list_insert_before(first, link);
}

void psc_match_list_insert(psc_match_list_t *list, psc_link_t *link)
{
    int32_t tag = entry_tag(list, link);

    list_insert(list, &list->all, link, 0);
    if (!list->index)
        return;
    list_insert(list, index_list(list->index, tag), entry_bucket(list, link),
                list->shape->bucket);
    index_grow(list, tag);
}
