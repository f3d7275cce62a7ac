/* Entries: matching, the overflow list, searches. */
#include <unistd.h>

#include "cases.h"

static uint8_t mine[1 << 20], theirs[1 << 20];

/* ---- operations that the entry does not allow ---- */

static void refused_first(side_t *side)
{
    ptl_sr_value_t value;

    meet(side);
    put(side, mine, 300, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OP_VIOLATION);
    put(side, mine, 300, 2, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_PERM_VIOLATION);
    put(side, mine, 100000, 3, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_DROPPED);
    same(PtlGet(side->md, (uintptr_t)mine, 100, side->peer, side->pt, 4, 0,
                NULL),
         PTL_OK);
    expect(side, PTL_EVENT_REPLY, PTL_NI_OP_VIOLATION);
    same(PtlPut(side->md, (uintptr_t)mine, 8, PTL_ACK_REQ, side->peer,
                side->pt + 1, 0, 0, NULL, 0),
         PTL_OK);
    expect(side, PTL_EVENT_ACK, PTL_NI_DROPPED);
    same(PtlNIStatus(side->ni, PTL_SR_DROP_COUNT, &value), PTL_OK);
    same(value, 0);
    meet(side);
}

static void refused_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 1000, 1);
    ptl_sr_value_t value;
    ptl_uid_t uid;

    me.options = PTL_ME_OP_GET | PTL_ME_EVENT_LINK_DISABLE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    me.match_bits = 2;
    me.options = PTL_ME_OP_PUT | PTL_ME_EVENT_LINK_DISABLE;
    same(PtlGetUid(side->ni, &uid), PTL_OK);
    same(uid, geteuid());
    me.uid = uid + 1;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    me.uid = uid;
    me.match_bits = 4;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    meet(side);
    expect_nothing(side);
    same(PtlNIStatus(side->ni, PTL_SR_DROP_COUNT, &value), PTL_OK);
    same(value, 2);
    same(PtlNIStatus(side->ni, PTL_SR_PERMISSION_VIOLATIONS, &value), PTL_OK);
    same(value, 1);
    same(PtlNIStatus(side->ni, PTL_SR_OPERATION_VIOLATIONS, &value), PTL_OK);
    same(value, 2);
}

void case_refused_operations(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(refused_first, refused_second);
}

/* ---- bits, ignored bits, initiators, the order of the list ---- */

static void matching_first(side_t *side)
{
    static const uint64_t bits[] = {0x1234, 0x12ff, 0x1234, 0x5678, 0x5678};

    meet(side);
    for (unsigned i = 0; i < 5; i++)
        put(side, mine, 8, bits[i], i, PTL_NO_ACK_REQ);
    meet(side);
}

static void matching_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 0x1200);
    static const uintptr_t wanted[] = {1, 3, 2, 6, 7};

    me.ignore_bits = 0xf; /* does not match 0x1234 */
    append(side, &me, PTL_PRIORITY_LIST, (void *)9);
    me.ignore_bits = 0xff;
    append(side, &me, PTL_PRIORITY_LIST, (void *)1);
    me = entry_for(theirs, 8, 0x1234);
    append(side, &me, PTL_PRIORITY_LIST, (void *)2);
    me.match_bits = 0x12ff;
    append(side, &me, PTL_PRIORITY_LIST, (void *)3);
    me.match_bits = 0x5678;
    me.match_id.phys.pid = side->me.phys.pid;
    append(side, &me, PTL_PRIORITY_LIST, (void *)4);
    me.match_id = side->peer;
    me.match_id.phys.nid++;
    append(side, &me, PTL_PRIORITY_LIST, (void *)5);
    me.match_id = side->peer;
    append(side, &me, PTL_PRIORITY_LIST, (void *)6);
    append(side, &me, PTL_PRIORITY_LIST, (void *)7);
    meet(side);
    for (unsigned i = 0; i < 5; i++) {
        ptl_event_t event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);

        same(event.hdr_data, i);
        same((uintptr_t)event.user_ptr, wanted[i]);
    }
    meet(side);
}

void case_matching(void)
{
    pair(matching_first, matching_second);
}

/* ---- messages that are longer than the entry ---- */

static void truncation_first(side_t *side)
{
    ptl_event_t event;

    fill(mine, 200000, 1);
    meet(side);
    put(side, mine, 200000, 1, 0, PTL_ACK_REQ);
    event = expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    same(event.rlength, 200000);
    same(event.mlength, 70000);
    same(PtlPut(side->md, (uintptr_t)mine, 100, PTL_ACK_REQ, side->peer,
                side->pt, 2, 2000, NULL, 0),
         PTL_OK);
    same(expect(side, PTL_EVENT_ACK, PTL_NI_OK).mlength, 0);
    put(side, mine, 1001, 3, 0, PTL_ACK_REQ); /* too long for the first entry */
    same(expect(side, PTL_EVENT_ACK, PTL_NI_OK).mlength, 1001);
}

static void truncation_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 70000, 1);
    ptl_event_t event;

    theirs[70000] = 0xaa;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    me = entry_for(theirs + 100000, 1000, 2);
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    me.match_bits = 3;
    me.options |= PTL_ME_NO_TRUNCATE;
    append(side, &me, PTL_PRIORITY_LIST, (void *)1);
    me.length = 1001;
    append(side, &me, PTL_PRIORITY_LIST, (void *)2);
    meet(side);
    event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);
    same(event.rlength, 200000);
    same(event.mlength, 70000);
    check(filled(theirs, 70000, 1));
    same(theirs[70000], 0xaa);
    same(expect(side, PTL_EVENT_PUT, PTL_NI_OK).mlength, 0);
    same((uintptr_t)expect(side, PTL_EVENT_PUT, PTL_NI_OK).user_ptr, 2);
}

void case_truncation(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(truncation_first, truncation_second);
}

/* ---- entries that place messages one after the other ---- */

static void managed_first(side_t *side)
{
    meet(side);
    for (unsigned i = 0; i < 7; i++) {
        fill(mine, 300, i);
        put(side, mine, 300, 1, i, PTL_ACK_REQ);
        same(expect(side, PTL_EVENT_ACK, PTL_NI_OK).remote_offset, i % 3 * 300);
    }
}

static void managed_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 1000, 1);

    me.options = PTL_ME_OP_PUT | PTL_ME_MANAGE_LOCAL;
    me.min_free = 300; /* so three messages fit */
    for (unsigned i = 0; i < 3; i++) {
        me.start = theirs + i * 1000;
        append(side, &me, PTL_PRIORITY_LIST, (void *)(uintptr_t)i);
        same((uintptr_t)expect(side, PTL_EVENT_LINK, PTL_NI_OK).user_ptr, i);
    }
    meet(side);
    for (unsigned i = 0; i < 7; i++) {
        ptl_event_t event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);

        same((uintptr_t)event.user_ptr, i / 3);
        check(event.start == theirs + i / 3 * 1000 + i % 3 * 300);
        check(filled(event.start, 300, i));
        if (i % 3 == 2)
            same((uintptr_t)expect(side, PTL_EVENT_AUTO_UNLINK, PTL_NI_OK)
                     .user_ptr,
                 i / 3);
    }
    expect_nothing(side);
}

void case_managed_locally(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(managed_first, managed_second);
}

/* ---- unexpected messages ---- */

static ptl_me_t overflow_entry(void *start, size_t length, size_t min_free)
{
    ptl_me_t me = entry_for(start, length, 0);

    me.ignore_bits = ~(uint64_t)0;
    me.min_free = min_free;
    me.options =
        PTL_ME_OP_PUT | PTL_ME_MANAGE_LOCAL | PTL_ME_EVENT_LINK_DISABLE;
    return me;
}

static void unexpected_first(side_t *side)
{
    meet(side);
    for (unsigned i = 0; i < 6; i++) {
        fill(mine, 400, i);
        put(side, mine, 400, i, i, PTL_ACK_REQ);
        same(expect(side, PTL_EVENT_ACK, PTL_NI_OK).ptl_list,
             PTL_OVERFLOW_LIST);
    }
    meet(side);
    meet(side);
    /* the priority list has an entry for this put */
    put(side, mine, 400, 77, 7, PTL_ACK_REQ);
    same(expect(side, PTL_EVENT_ACK, PTL_NI_OK).ptl_list, PTL_PRIORITY_LIST);
}

static void take_unexpected(side_t *side, uint64_t bits, bool freed)
{
    ptl_me_t me = entry_for(mine, 1000, bits);
    ptl_handle_me_t handle;
    ptl_event_t event;

    handle = append(side, &me, PTL_PRIORITY_LIST, &mine[bits]);
    same(handle, PTL_INVALID_HANDLE);
    event = expect(side, PTL_EVENT_PUT_OVERFLOW, PTL_NI_OK);
    check(event.user_ptr == &mine[bits]);
    same(event.hdr_data, bits);
    same(event.mlength, 400);
    check(filled(event.start, 400, (unsigned)bits));
    if (freed)
        expect(side, PTL_EVENT_AUTO_FREE, PTL_NI_OK);
}

static void unexpected_second(side_t *side)
{
    ptl_me_t over = overflow_entry(theirs, 1200, 1);
    ptl_me_t me = entry_for(mine, 1000, 77);

    append(side, &over, PTL_OVERFLOW_LIST, (void *)1);
    over.start = theirs + 1200;
    append(side, &over, PTL_OVERFLOW_LIST, (void *)2);
    meet(side);
    meet(side);
    for (unsigned i = 0; i < 6; i++) {
        ptl_event_t event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);

        same(event.ptl_list, PTL_OVERFLOW_LIST);
        same((uintptr_t)event.user_ptr, i / 3 + 1);
        if (i % 3 == 2)
            expect(side, PTL_EVENT_AUTO_UNLINK, PTL_NI_OK);
    }
    /* Take the first buffer's messages in another order, then the second's. */
    take_unexpected(side, 2, false);
    take_unexpected(side, 0, false);
    take_unexpected(side, 1, true);
    me.options = PTL_ME_OP_PUT | PTL_ME_EVENT_OVER_DISABLE;
    me.match_bits = 5;
    append(side, &me, PTL_PRIORITY_LIST, NULL); /* no overflow event */
    expect(side, PTL_EVENT_LINK, PTL_NI_OK); /* the entry stays */
    take_unexpected(side, 3, false);
    take_unexpected(side, 4, true);
    me.match_bits = 77;
    me.options = PTL_ME_OP_PUT | PTL_ME_USE_ONCE | PTL_ME_EVENT_LINK_DISABLE;
    append(side, &me, PTL_PRIORITY_LIST, (void *)7);
    meet(side);
    same((uintptr_t)expect(side, PTL_EVENT_PUT, PTL_NI_OK).user_ptr, 7);
    same((uintptr_t)expect(side, PTL_EVENT_AUTO_UNLINK, PTL_NI_OK).user_ptr, 7);
    expect_nothing(side);
}

void case_unexpected(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(unexpected_first, unexpected_second);
}

#define HALF_ROUNDS 100

/* A long message is matched while its bytes are arriving. Dropped frames slow
 * the initiator down; if all bytes have arrived nevertheless, both sides try
 * again. */
static void half_first(side_t *side)
{
    fill(mine, sizeof(mine), 4);
    do {
        meet(side);
        put(side, mine, sizeof(mine), 6, 0, PTL_ACK_REQ);
        same(expect(side, PTL_EVENT_ACK, PTL_NI_OK).mlength, sizeof(mine));
    } while (told(side));
}

/* Returns true if the entry matched before all bytes had arrived. */
static bool half_claimed(const side_t *side)
{
    ptl_event_t events[5];
    bool halfway;

    for (unsigned i = 0; i < 5; i++) {
        events[i] = next_event(side);
        same(events[i].ni_fail_type, PTL_NI_OK);
    }
    same(events[0].type, PTL_EVENT_PUT);
    same((uintptr_t)events[0].user_ptr, 1);
    halfway = events[1].type == PTL_EVENT_PUT_OVERFLOW;
    same(events[halfway ? 1 : 2].type, PTL_EVENT_PUT_OVERFLOW);
    same((uintptr_t)events[halfway ? 1 : 2].user_ptr, 2);
    same(events[halfway ? 1 : 2].mlength, sizeof(theirs));
    same(events[halfway ? 2 : 1].type, PTL_EVENT_AUTO_UNLINK);
    same((uintptr_t)events[halfway ? 2 : 1].user_ptr, halfway ? 2 : 1);
    same(events[3].type, PTL_EVENT_AUTO_UNLINK);
    same((uintptr_t)events[3].user_ptr, halfway ? 1 : 2);
    same(events[4].type, PTL_EVENT_AUTO_FREE);
    return halfway;
}

static bool half_round(side_t *side)
{
    ptl_me_t over = overflow_entry(theirs, sizeof(theirs), 1);
    ptl_me_t me = entry_for(mine, 8, 6);
    uint64_t before = counted(side).bytes_copied;
    ptl_event_t event;
    bool halfway;

    memset(theirs, 0, sizeof(theirs));
    append(side, &over, PTL_OVERFLOW_LIST, (void *)1);
    meet(side);
    while (counted(side).bytes_copied == before)
        PtlEQGet(side->spare, &event);
    me.options &= ~PTL_ME_EVENT_UNLINK_DISABLE;
    append(side, &me, PTL_PRIORITY_LIST, (void *)2);
    halfway = half_claimed(side);
    check(filled(theirs, sizeof(theirs), 4));
    return halfway;
}

static void half_second(side_t *side)
{
    unsigned rounds = 1;

    while (!half_round(side)) {
        same(rounds++ < HALF_ROUNDS, true);
        tell(side, true);
    }
    tell(side, false);
    expect_nothing(side);
}

void case_unexpected_half_way(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.drop = 300000;
    setup.settings.seed = 3;
    pair(half_first, half_second);
}

/* ---- searches ---- */

static void search_first(side_t *side)
{
    meet(side);
    for (unsigned i = 0; i < 4; i++)
        put(side, mine, 100 + i, i / 2, i, PTL_ACK_REQ);
    for (unsigned i = 0; i < 4; i++)
        expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    meet(side);
    meet(side);
}

static void search(side_t *side, uint64_t bits, unsigned options,
                   ptl_search_op_t operation)
{
    ptl_me_t me = entry_for(NULL, 0, bits);

    me.options = PTL_ME_OP_PUT | options;
    same(PtlMESearch(side->ni, side->pt, &me, operation, (void *)5), PTL_OK);
}

static void search_second(side_t *side)
{
    ptl_me_t over = overflow_entry(theirs, sizeof(theirs), 1);
    ptl_handle_me_t handle;
    ptl_event_t event;

    over.options |= PTL_ME_EVENT_COMM_DISABLE;
    handle = append(side, &over, PTL_OVERFLOW_LIST, NULL);
    meet(side);
    meet(side);
    search(side, 9, 0, PTL_SEARCH_ONLY);
    same((uintptr_t)expect(side, PTL_EVENT_SEARCH, PTL_NI_NO_MATCH).user_ptr,
         5);
    for (unsigned again = 0; again < 2; again++) {
        search(side, 1, PTL_ME_USE_ONCE, PTL_SEARCH_ONLY);
        event = expect(side, PTL_EVENT_SEARCH, PTL_NI_OK);
        same(event.hdr_data, 2);
        same(event.mlength, 102);
        same(event.initiator.phys.pid, side->peer.phys.pid);
    }
    same(PtlMEUnlink(handle), PTL_IN_USE);
    search(side, 1, PTL_ME_USE_ONCE, PTL_SEARCH_DELETE);
    same(expect(side, PTL_EVENT_SEARCH, PTL_NI_OK).hdr_data, 2);
    search(side, 1, PTL_ME_USE_ONCE, PTL_SEARCH_ONLY);
    same(expect(side, PTL_EVENT_SEARCH, PTL_NI_OK).hdr_data, 3);
    search(side, 0, 0, PTL_SEARCH_DELETE); /* delete all of them */
    same(expect(side, PTL_EVENT_SEARCH, PTL_NI_OK).hdr_data, 0);
    same(expect(side, PTL_EVENT_SEARCH, PTL_NI_OK).hdr_data, 1);
    search(side, 0, 0, PTL_SEARCH_DELETE);
    expect(side, PTL_EVENT_SEARCH, PTL_NI_NO_MATCH);
    search(side, 1, 0, PTL_SEARCH_DELETE);
    expect(side, PTL_EVENT_SEARCH, PTL_NI_OK);
    same(PtlMEUnlink(handle), PTL_OK);
    same(PtlMEUnlink(handle), PTL_ARG_INVALID);
    same(PtlPTFree(side->ni, side->pt), PTL_OK);
    meet(side);
    expect_nothing(side);
}

void case_search(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(search_first, search_second);
}

/* ---- unlinking ---- */

static void unlink_first(side_t *side)
{
    meet(side);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_DROPPED);
    put(side, mine, sizeof(mine), 2, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    meet(side);
}

static void unlink_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, sizeof(theirs), 1);
    ptl_handle_me_t handle;
    ptl_event_t event = {0};
    int rc, unlinked = PTL_IN_USE;

    handle = append(side, &me, PTL_PRIORITY_LIST, NULL);
    same(PtlPTFree(side->ni, side->pt), PTL_PT_IN_USE);
    same(PtlMEUnlink(handle), PTL_OK);
    same(PtlMEUnlink(handle), PTL_ARG_INVALID);
    me.match_bits = 2;
    me.options &= ~PTL_ME_USE_ONCE;
    handle = append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    do
        rc = PtlEQGet(side->eq, &event);
    while (rc == PTL_EQ_EMPTY && counted(side).bytes_copied == 0);
    if (rc == PTL_EQ_EMPTY) {
        /* the put has begun; it may be complete if we were slow */
        unlinked = PtlMEUnlink(handle);
        event = next_event(side);
    }
    same(event.type, PTL_EVENT_PUT);
    same(event.ni_fail_type, PTL_NI_OK);
    if (unlinked == PTL_IN_USE)
        unlinked = PtlMEUnlink(handle);
    same(unlinked, PTL_OK);
    meet(side);
    expect_nothing(side);
}

void case_unlink(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.drop = 300000;
    setup.settings.seed = 5;
    pair(unlink_first, unlink_second);
}

static void used_first(side_t *side)
{
    meet(side);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    put(side, mine, 8, 2, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    meet(side);
}

/* Checks the result of PtlMEUnlink for entries that messages have used up while
 * their events are still in the queue; the header of one entry is still in the
 * overflow list. */
static void used_second(side_t *side)
{
    bool lies = setup.settings.unlink_used;
    ptl_me_t me = entry_for(theirs, sizeof(theirs), 1);
    ptl_handle_me_t gone, kept;

    gone = append(side, &me, PTL_PRIORITY_LIST, NULL);
    me.match_bits = 2;
    kept = append(side, &me, PTL_OVERFLOW_LIST, NULL);
    meet(side);
    meet_busily(side);
    same(PtlMEUnlink(gone), lies ? PTL_OK : PTL_ARG_INVALID);
    same(PtlMEUnlink(kept), lies ? PTL_OK : PTL_IN_USE);
    same(counted(side).used_unlinked, lies ? 2 : 0);
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
    expect_nothing(side);
}

void case_unlink_used(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(used_first, used_second);
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE; /* pair() has reset it */
    setup.settings.unlink_used = true;
    pair(used_first, used_second);
}

/* ---- without matching ---- */

static void plain_first(side_t *side)
{
    ptl_me_t me = entry_for(mine, 8, 0);
    ptl_handle_me_t handle;

    same(PtlMEAppend(side->ni, side->pt, &me, PTL_PRIORITY_LIST, NULL, &handle),
         PTL_ARG_INVALID);
    meet(side);
    for (unsigned i = 0; i < 5; i++)
        put(side, mine, 100, i * 1000, i, PTL_ACK_REQ);
    for (unsigned i = 0; i < 5; i++)
        expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    meet(side);
}

static void plain_second(side_t *side)
{
    ptl_le_t le = {.start = theirs,
                   .length = 1000,
                   .ct_handle = PTL_CT_NONE,
                   .uid = PTL_UID_ANY,
                   .options = PTL_LE_OP_PUT | PTL_LE_USE_ONCE |
                              PTL_LE_EVENT_LINK_DISABLE};
    ptl_handle_le_t handle;
    ptl_event_t event;

    for (unsigned i = 0; i < 3; i++)
        same(PtlLEAppend(side->ni, side->pt, &le, PTL_PRIORITY_LIST,
                         (void *)(uintptr_t)i, &handle),
             PTL_OK);
    le.options = PTL_LE_OP_PUT;
    same(PtlLEAppend(side->ni, side->pt, &le, PTL_OVERFLOW_LIST, (void *)9,
                     &handle),
         PTL_OK);
    expect(side, PTL_EVENT_LINK, PTL_NI_OK);
    meet(side);
    for (unsigned i = 0; i < 3; i++) {
        event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);
        same((uintptr_t)event.user_ptr, i);
        expect(side, PTL_EVENT_AUTO_UNLINK, PTL_NI_OK);
    }
    same((uintptr_t)expect(side, PTL_EVENT_PUT, PTL_NI_OK).user_ptr, 9);
    same((uintptr_t)expect(side, PTL_EVENT_PUT, PTL_NI_OK).user_ptr, 9);
    meet(side);
    le.options |= PTL_LE_USE_ONCE;
    same(PtlLESearch(side->ni, side->pt, &le, PTL_SEARCH_DELETE, NULL), PTL_OK);
    same(expect(side, PTL_EVENT_SEARCH, PTL_NI_OK).hdr_data, 3);
    same(PtlLEUnlink(handle), PTL_IN_USE);
    same(PtlLESearch(side->ni, side->pt, &le, PTL_SEARCH_DELETE, NULL), PTL_OK);
    expect(side, PTL_EVENT_SEARCH, PTL_NI_OK);
    same(PtlLEUnlink(handle), PTL_OK);
    expect_nothing(side);
}

void case_not_matching(void)
{
    setup.ni_options = PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL;
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(plain_first, plain_second);
}

/* ---- no entry at all ---- */

static void nothing_first(side_t *side)
{
    meet(side);
    for (unsigned i = 0; i < 3; i++) {
        put(side, mine, sizeof(mine), i, 0, PTL_ACK_REQ);
        expect(side, PTL_EVENT_ACK, PTL_NI_DROPPED);
    }
    put(side, mine, 100, 4, 0, PTL_NO_ACK_REQ);
    put(side, mine, 100, 5, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
}

static void nothing_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 100, 5);

    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
    same(counted(side).bytes_copied, 100);
}

void case_nothing_takes_it(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(nothing_first, nothing_second);
}
