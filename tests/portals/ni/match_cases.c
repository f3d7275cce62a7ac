/* Long lists, compared with a linear search: entries with many different ignore
 * bits, and unexpected messages. */
#include "harness.h"
#include "harness.h"
#include "softni/pscompy_softni/nic.h"

#define ROUNDS 40000u

static uint64_t dice = 1;

static uint32_t roll(uint32_t sides)
{
    dice = dice * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(dice >> 33) % sides;
}

/* A random mask of ignored bits. There are more different masks than a list
 * has classes. */
static uint64_t some_ignore(uint32_t ways)
{
    uint32_t way = roll(ways);

    return way == 0 ? 0 : ~(uint64_t)0 >> (64 - 4 * way);
}

static uint64_t some_bits(void)
{
    return (uint64_t)roll(8) << 40 | (uint64_t)roll(6) << 20 | roll(5);
}

static ptl_process_t some_process(void)
{
    return (ptl_process_t){.phys = {.nid = 7, .pid = roll(3)}};
}

static bool takes(const ptl_me_t *me, const psni_arrival_t *arrival)
{
    return ((me->match_bits ^ arrival->match_bits) & ~me->ignore_bits) == 0 &&
           (me->match_id.phys.pid == PTL_PID_ANY ||
            me->match_id.phys.pid == arrival->initiator.phys.pid);
}

static ptl_me_t some_me(uint32_t ways)
{
    ptl_me_t me = {.match_bits = some_bits(),
                   .ignore_bits = some_ignore(ways),
                   .uid = PTL_UID_ANY,
                   .options = PTL_ME_OP_PUT,
                   .match_id = some_process()};

    if (roll(2) == 0)
        me.match_id.phys = (__typeof__(me.match_id.phys)){.nid = PTL_NID_ANY,
                                                          .pid = PTL_PID_ANY};
    return me;
}

static psni_arrival_t some_arrival(void)
{
    return (psni_arrival_t){.verb = PSNI_PUT,
                            .initiator = some_process(),
                            .match_bits = some_bits()};
}

/* ---- entries ---- */

static void entry_add(psni_list_t *list, uint32_t ways)
{
    psni_entry_t *entry = calloc(1, sizeof(*entry));

    check(entry != NULL);
    entry->me = some_me(ways);
    psni_list_add(list, entry);
}

static void entry_remove(psni_entry_t *entry)
{
    psni_list_remove(entry);
    free(entry);
}

static psni_entry_t *entry_search(psni_list_t *list,
                                  const psni_arrival_t *arrival)
{
    psc_list_for_each(entry, &list->entries, psni_entry_t, link)
        if (takes(&entry->me, arrival))
            return entry;
    return NULL;
}

static void many_entries(uint32_t ways, uint32_t most)
{
    psni_list_t list;
    unsigned n = 0, found = 0;

    psni_list_init(&list);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        psni_arrival_t arrival = some_arrival();
        psni_entry_t *entry = psni_list_find(&list, &arrival);

        check(entry == entry_search(&list, &arrival));
        if (entry != NULL && roll(4) != 0) {
            entry_remove(entry);
            n--;
            found++;
        }
        for (; n < most && roll(3) != 0; n++)
            entry_add(&list, ways);
    }
    check(found > 100);
    psc_list_for_each(entry, &list.entries, psni_entry_t, link)
        entry_remove(entry);
    psni_list_close(&list);
}

CASE(many_entries)
{
    many_entries(1, 5);
    many_entries(2, 300);
    many_entries(3, 1000);
    many_entries(14, 200);
}

/* ---- unexpected messages ---- */

static psni_header_t *header_search(psni_pt_t *pt, const ptl_me_t *me)
{
    psc_list_for_each(header, &pt->unexpected.all, psni_header_t, link)
        if (takes(me, &header->arrival))
            return header;
    return NULL;
}

static void header_remove(psni_pt_t *pt, psni_header_t *header)
{
    psni_headers_remove(&pt->unexpected, header);
    free(header);
}

static void many_headers(uint32_t ways, uint32_t most)
{
    static psni_pt_t pt;
    unsigned n = 0, found = 0;

    psni_headers_init(&pt.unexpected);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        ptl_me_t me = some_me(1 + i * ways / ROUNDS);
        psni_header_t *header = psni_header_find(&pt, &me);

        check(header == header_search(&pt, &me));
        if (header != NULL) {
            header_remove(&pt, header);
            n--;
            found++;
        }
        for (; n < most && roll(3) != 0; n++) {
            header = calloc(1, sizeof(*header));
            check(header != NULL);
            header->arrival = some_arrival();
            psni_headers_add(&pt.unexpected, header);
        }
    }
    check(found > 100);
    psc_list_for_each(header, &pt.unexpected.all, psni_header_t, link)
        header_remove(&pt, header);
    psni_headers_close(&pt.unexpected);
}

CASE(many_unexpected)
{
    many_headers(1, 500);
    many_headers(3, 1000);
    many_headers(14, 200);
}
