/* Entries: which one takes a message, and where the message is placed. */
#include <unistd.h>

#include "harness.h"

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

CASE(refused_operations)
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

CASE(matching)
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

CASE(truncation)
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

CASE(managed_locally)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(managed_first, managed_second);
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

CASE(not_matching)
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

CASE(nothing_takes_it)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(nothing_first, nothing_second);
}
