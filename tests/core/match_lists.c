/* Lists with an index against a plain array that is searched from its
 * beginning: entries come, go and return in random order, in numbers that let
 * the index grow and shrink. */
#include "harness.h"
#include "pscompy/proto/match.h"

enum { ENTRIES = 3000, STEPS = 12000 };

typedef struct entry {
    psc_link_t bucket, link; /* here the bucket stands in front */
    uint64_t order;
    int32_t tag;
    bool listed;
} entry_t;

static const psc_match_shape_t shape =
    PSC_MATCH_SHAPE(entry_t, link, bucket, tag, order);

/* How the tags of a run are made of random numbers. */
typedef struct mix {
    uint32_t tags, stride, any; /* one entry in `any` has PSC_ANY_TAG */
} mix_t;

static struct {
    psc_match_list_t list;
    entry_t entries[ENTRIES]; /* by their order */
    unsigned n;               /* entries that have been in the list */
    unsigned listed;
    uint32_t random;
} run;

static uint32_t draw(uint32_t below)
{
    run.random = run.random * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)run.random * below >> 32);
}

static int32_t draw_tag(const mix_t *mix)
{
    if (mix->any && draw(mix->any) == 0)
        return PSC_ANY_TAG;
    return (int32_t)(draw(mix->tags) * mix->stride & PSC_TAG_MAX);
}

static psc_link_t *expected(int32_t tag)
{
    for (unsigned i = 0; i < run.n; i++) {
        const entry_t *entry = &run.entries[i];

        if (entry->listed && (tag == PSC_ANY_TAG || entry->tag == tag ||
                              entry->tag == PSC_ANY_TAG))
            return &run.entries[i].link;
    }
    return NULL;
}

static void drop(psc_link_t *link)
{
    psc_match_list_remove(&run.list, link);
    psc_container_of(link, entry_t, link)->listed = false;
    run.listed--;
}

static void search(const mix_t *mix, bool take)
{
    int32_t tag = draw_tag(mix);
    psc_link_t *link = psc_list_empty(&run.list.all)
                           ? NULL
                           : psc_match_list_search(&run.list, tag);

    check(link == expected(tag));
    if (take && link)
        drop(link);
}

static void add(const mix_t *mix)
{
    entry_t *entry = &run.entries[run.n];

    if (run.n == ENTRIES)
        return;
    *entry = (entry_t){.order = ++run.n, .tag = draw_tag(mix), .listed = true};
    psc_match_list_push(&run.list, &entry->link);
    run.listed++;
}

/* Any entry: one in the list leaves, another returns to its place. */
static void turn(void)
{
    entry_t *entry = &run.entries[draw(run.n ? run.n : 1)];

    if (entry->listed) {
        drop(&entry->link);
    } else if (run.n) {
        psc_match_list_insert(&run.list, &entry->link);
        entry->listed = true;
        run.listed++;
    }
}

static void check_order(void)
{
    unsigned n = 0;
    uint64_t last = 0;

    psc_list_for_each(entry, &run.list.all, entry_t, link) {
        check(entry->order > last && entry->listed);
        last = entry->order;
        n++;
    }
    check(n == run.listed);
}

static void rounds(const mix_t *mix, unsigned steps, unsigned adds)
{
    while (steps--) {
        switch (draw(adds + 4)) {
        case 0:
            search(mix, false);
            break;
        case 1:
        case 2:
            search(mix, true);
            break;
        case 3:
            turn();
            break;
        default:
            add(mix);
        }
    }
    check_order();
}

static void compare(const mix_t *mix, uint32_t seed)
{
    psc_match_list_init(&run.list, &shape);
    run.n = run.listed = 0;
    run.random = seed;
    rounds(mix, STEPS / 2, 8);
    rounds(mix, STEPS / 2, 0);
    while (run.listed)
        search(&(mix_t){1, 1, 1}, true); /* drains in order */
    check(psc_list_empty(&run.list.all));
    rounds(mix, 200, 2);
    while (run.listed)
        drop(expected(PSC_ANY_TAG));
    psc_match_list_clear(&run.list);
}

CASE(match_lists)
{
    static const mix_t mixes[] = {
        {1, 1, 0},       {2, 1, 3},          {20, 1, 0},
        {1 << 20, 1, 0}, {1 << 20, 64, 100}, {1 << 12, 1 << 16, 0},
        {5, 1, 50},      {1 << 30, 1, 2},
    };

    for (uint32_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
        compare(&mixes[i], 7 * i + 1);
        compare(&mixes[i], 7 * i + 2);
    }
}
