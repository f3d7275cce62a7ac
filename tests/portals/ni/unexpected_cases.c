/* Messages without a receive: the overflow list, and searches. */
#include "harness.h"

static uint8_t mine[1 << 20], theirs[1 << 20];

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

CASE(unexpected)
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

CASE(unexpected_half_way)
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

CASE(search)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(search_first, search_second);
}
