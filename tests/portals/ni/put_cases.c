/* Puts and gets that succeed, and their events. */
#include "harness.h"

static uint8_t mine[3 << 20], theirs[(3 << 20) + 3];

/* ---- sizes: the events at both ends describe each put ---- */

static const size_t sizes[] = {0,     1,      8,       256,         257,
                               8192,  61440,  61441,   100000,      1 << 20,
                               65536, 122880, 1000003, sizeof(mine)};
enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void sizes_first(side_t *side)
{
    for (unsigned i = 0; i < N_SIZES; i++) {
        ptl_event_t event;

        fill(mine, sizes[i], i);
        meet(side);
        same(PtlPut(side->md, (uintptr_t)mine, sizes[i], PTL_ACK_REQ,
                    side->peer, side->pt, i, 3, &mine[i], 17 + i),
             PTL_OK);
        event = expect(side, PTL_EVENT_SEND, PTL_NI_OK);
        check(event.user_ptr == &mine[i]);
        same(event.mlength, sizes[i]);
        event = expect(side, PTL_EVENT_ACK, PTL_NI_OK);
        check(event.user_ptr == &mine[i]);
        same(event.mlength, sizes[i]);
        same(event.remote_offset, 3);
    }
    expect_nothing(side);
}

static void sizes_second(side_t *side)
{
    for (unsigned i = 0; i < N_SIZES; i++) {
        ptl_me_t me = entry_for(theirs, sizes[i] + 3, i);
        ptl_event_t event;

        theirs[0] = theirs[1] = theirs[2] = 0xaa;
        append(side, &me, PTL_PRIORITY_LIST, &theirs[i]);
        meet(side);
        event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);
        check(event.user_ptr == &theirs[i]);
        check(event.start == theirs + 3);
        same(event.hdr_data, 17 + i);
        same(event.match_bits, i);
        same(event.rlength, sizes[i]);
        same(event.mlength, sizes[i]);
        same(event.remote_offset, 3);
        same(event.initiator.phys.nid, side->peer.phys.nid);
        same(event.initiator.phys.pid, side->peer.phys.pid);
        same(event.pt_index, side->pt);
        same(event.ptl_list, PTL_PRIORITY_LIST);
        check(filled(theirs + 3, sizes[i], i));
        same(theirs[2], 0xaa);
    }
    expect_nothing(side);
}

CASE(sizes)
{
    pair(sizes_first, sizes_second);
}

/* ---- order: puts of all sizes match in the order of their posting ---- */

enum { ORDERED = 400 };

static size_t size_of(unsigned i)
{
    static const size_t some[] = {8, 70000, 0, 300, 8192, 64};

    return some[i % 6];
}

static void order_first(side_t *side)
{
    meet(side);
    fill(mine, sizeof(mine), 0);
    for (unsigned i = 0; i < ORDERED; i++)
        put(side, mine, size_of(i), 5, i, PTL_ACK_REQ);
    for (unsigned i = 0; i < ORDERED; i++)
        expect(side, PTL_EVENT_ACK, PTL_NI_OK);
}

static void order_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, sizeof(theirs), 5);

    for (unsigned i = 0; i < ORDERED; i++)
        append(side, &me, PTL_PRIORITY_LIST, (void *)(uintptr_t)i);
    meet(side);
    for (unsigned i = 0; i < ORDERED; i++) {
        ptl_event_t event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);

        same(event.hdr_data, i);
        same((uintptr_t)event.user_ptr, i);
        same(event.mlength, size_of(i));
    }
}

CASE(order)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(order_first, order_second);
}

/* ---- a side puts to itself ---- */

static void itself_first(side_t *side)
{
    ptl_me_t me = entry_for(theirs, sizeof(theirs), 1);
    bool acked = false, came = false;

    side->peer = side->me;
    fill(mine, 200000, 9);
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    put(side, mine, 200000, 1, 0, PTL_ACK_REQ);
    while (!acked || !came) {
        ptl_event_t event = next_event(side);

        same(event.ni_fail_type, PTL_NI_OK);
        acked |= event.type == PTL_EVENT_ACK;
        came |= event.type == PTL_EVENT_PUT;
    }
    check(filled(theirs, 200000, 9));
}

static void idle(side_t *side)
{
    (void)side;
}

CASE(to_itself)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(itself_first, idle);
}

/* ---- the buffer is free at once where the specification requires it ---- */

static void volatile_first(side_t *side)
{
    meet(side);
    for (unsigned i = 0; i < 50; i++) {
        size_t length = i % 2 == 0 ? 200 : side->limits.max_volatile_size;

        fill(mine, length, i);
        put(side, mine, length, i, 0, PTL_NO_ACK_REQ);
        memset(mine, 0xee, length);
        expect(side, PTL_EVENT_SEND, PTL_NI_OK);
    }
    same(PtlPut(side->md, (uintptr_t)mine, side->limits.max_volatile_size + 1,
                PTL_NO_ACK_REQ, side->peer, side->pt, 0, 0, NULL, 0),
         PTL_ARG_INVALID);
    meet(side);
}

static void volatile_second(side_t *side)
{
    for (unsigned i = 0; i < 50; i++) {
        ptl_me_t me = entry_for(theirs + i * 10000, 10000, i);

        append(side, &me, PTL_PRIORITY_LIST, NULL);
    }
    meet(side);
    for (unsigned i = 0; i < 50; i++) {
        ptl_event_t event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);

        check(filled(event.start, event.mlength, i));
    }
    meet(side);
}

CASE(volatile_and_short)
{
    setup.md_options = PTL_MD_VOLATILE;
    pair(volatile_first, volatile_second);
}

/* ---- scattered memory at both ends ---- */

enum { PIECES = 60 };

static void cut(ptl_iovec_t *pieces, uint8_t *bytes, size_t length)
{
    for (unsigned i = 0; i < PIECES; i++) {
        size_t part = i == PIECES - 1 ? length : (i * 97) % 7000;

        if (part > length)
            part = length;
        pieces[i] = (ptl_iovec_t){.iov_base = bytes, .iov_len = part};
        bytes += part + 5;
        length -= part;
    }
}

static void collect(const ptl_iovec_t *pieces, uint8_t *bytes)
{
    for (unsigned i = 0; i < PIECES; i++) {
        memcpy(bytes, pieces[i].iov_base, pieces[i].iov_len);
        bytes += pieces[i].iov_len;
    }
}

enum { SCATTERED = 150000 };

static void scattered_first(side_t *side)
{
    ptl_iovec_t pieces[PIECES];
    ptl_md_t md = {.start = pieces,
                   .length = PIECES,
                   .options = PTL_IOVEC | PTL_MD_EVENT_SEND_DISABLE,
                   .eq_handle = side->eq,
                   .ct_handle = PTL_CT_NONE};
    ptl_handle_md_t handle;
    uint8_t *sent = malloc(SCATTERED);

    fill(mine, SCATTERED + 5 * PIECES, 3);
    cut(pieces, mine, SCATTERED);
    collect(pieces, sent);
    same(PtlMDBind(side->ni, &md, &handle), PTL_OK);
    meet(side);
    same(PtlPut(handle, 1000, SCATTERED - 1000, PTL_ACK_REQ, side->peer,
                side->pt, 1, 77, NULL, 0),
         PTL_OK);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    tell(side, sent[1000]);
    tell(side, sent[SCATTERED - 1]);
    /* Get the data back into other memory, which is scattered, too. */
    memset(mine, 0, sizeof(mine));
    same(PtlGet(handle, 1000, SCATTERED - 1000, side->peer, side->pt, 2, 77,
                NULL),
         PTL_OK);
    expect(side, PTL_EVENT_REPLY, PTL_NI_OK);
    collect(pieces, theirs);
    check(memcmp(theirs + 1000, sent + 1000, SCATTERED - 1000) == 0);
    same(theirs[999], 0);
    same(PtlMDRelease(handle), PTL_OK);
    free(sent);
}

static void scattered_second(side_t *side)
{
    ptl_iovec_t pieces[PIECES];
    ptl_me_t me = entry_for(pieces, PIECES, 1);

    cut(pieces, theirs, SCATTERED);
    me.options |= PTL_IOVEC;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    me.match_bits = 2;
    me.options |= PTL_ME_OP_GET;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    same(expect(side, PTL_EVENT_PUT, PTL_NI_OK).mlength, SCATTERED - 1000);
    collect(pieces, mine);
    same(mine[77], told(side));
    same(mine[77 + SCATTERED - 1001], told(side));
    expect(side, PTL_EVENT_GET, PTL_NI_OK);
}

CASE(scattered)
{
    pair(scattered_first, scattered_second);
}

/* ---- disabled events are not delivered ---- */

static void disabled_first(side_t *side)
{
    ptl_md_t md = {.length = PTL_SIZE_MAX,
                   .options = PTL_MD_EVENT_SUCCESS_DISABLE,
                   .eq_handle = side->eq,
                   .ct_handle = PTL_CT_NONE};

    same(PtlMDRelease(side->md), PTL_OK);
    same(PtlMDBind(side->ni, &md, &side->md), PTL_OK);
    meet(side);
    put(side, mine, 1000, 1, 0, PTL_ACK_REQ); /* the MD hides its ACK */
    put(side, mine, 1000, 2, 0, PTL_ACK_REQ); /* no event at the target */
    put(side, mine, 1000, 3, 0, PTL_ACK_REQ); /* the target sends no ACK */
    put(side, mine, 1000, 4, 0, PTL_ACK_REQ); /* no entry takes it */
    expect(side, PTL_EVENT_ACK, PTL_NI_DROPPED);
    meet(side);
    expect_nothing(side);
}

static void disabled_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 1000, 1);

    append(side, &me, PTL_PRIORITY_LIST, NULL);
    me.match_bits = 2;
    me.options |= PTL_ME_EVENT_COMM_DISABLE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    me.match_bits = 3;
    me.options |= PTL_ME_ACK_DISABLE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    same(expect(side, PTL_EVENT_PUT, PTL_NI_OK).match_bits, 1);
    meet(side);
    expect_nothing(side);
}

CASE(events_disabled)
{
    pair(disabled_first, disabled_second);
}

/* ---- counting ---- */

static ptl_handle_ct_t counter(const side_t *side)
{
    ptl_handle_ct_t ct;

    same(PtlCTAlloc(side->ni, &ct), PTL_OK);
    return ct;
}

static void counting_first(side_t *side)
{
    ptl_handle_ct_t acks = counter(side), bytes = counter(side);
    ptl_md_t md = {.length = PTL_SIZE_MAX,
                   .options = PTL_MD_EVENT_CT_ACK,
                   .eq_handle = PTL_EQ_NONE,
                   .ct_handle = acks};
    ptl_ct_event_t value;
    ptl_handle_md_t handle;

    same(PtlMDBind(side->ni, &md, &handle), PTL_OK);
    md.options = PTL_MD_EVENT_CT_REPLY | PTL_MD_EVENT_CT_BYTES;
    md.ct_handle = bytes;
    same(PtlMDBind(side->ni, &md, &side->md), PTL_OK);
    meet(side);
    for (unsigned i = 0; i < 10; i++)
        same(PtlPut(handle, (uintptr_t)mine, 100, PTL_CT_ACK_REQ, side->peer,
                    side->pt, 1, 0, NULL, 0),
             PTL_OK);
    same(PtlCTWait(acks, 10, &value), PTL_OK);
    same(value.success, 10);
    same(PtlPut(handle, 0, 0, PTL_OC_ACK_REQ, side->peer, side->pt, 99, 0, NULL,
                0),
         PTL_OK);
    same(PtlCTWait(acks, 11, &value), PTL_OK);
    same(value.failure, 1);
    same(PtlGet(side->md, (uintptr_t)mine, 300, side->peer, side->pt, 2, 0,
                NULL),
         PTL_OK);
    same(PtlCTWait(bytes, 300, &value), PTL_OK);
    same(value.success, 300);
    same(PtlCTFree(bytes), PTL_IN_USE);
    same(PtlMDRelease(side->md), PTL_OK);
    same(PtlCTFree(bytes), PTL_OK);
    same(PtlCTGet(bytes, &value), PTL_ARG_INVALID);
    meet(side);
    expect_nothing(side);
}

static void counting_second(side_t *side)
{
    ptl_handle_ct_t ct = counter(side);
    ptl_me_t me = entry_for(theirs, 1000, 1);
    ptl_ct_event_t value;

    me.ct_handle = ct;
    me.options = PTL_ME_OP_PUT | PTL_ME_EVENT_CT_COMM | PTL_ME_EVENT_CT_BYTES |
                 PTL_ME_EVENT_COMM_DISABLE | PTL_ME_EVENT_LINK_DISABLE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    me.match_bits = 2;
    me.options = PTL_ME_OP_GET | PTL_ME_EVENT_CT_COMM |
                 PTL_ME_EVENT_COMM_DISABLE | PTL_ME_EVENT_LINK_DISABLE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    same(PtlCTWait(ct, 1000, &value), PTL_OK);
    same(PtlCTWait(ct, 1001, &value), PTL_OK); /* the get */
    same(PtlCTSet(ct, (ptl_ct_event_t){.success = 5}), PTL_OK);
    same(PtlCTInc(ct, (ptl_ct_event_t){.success = 2, .failure = 1}), PTL_OK);
    same(PtlCTGet(ct, &value), PTL_OK);
    same(value.success, 7);
    same(value.failure, 1);
    meet(side);
    expect_nothing(side);
}

CASE(counting)
{
    pair(counting_first, counting_second);
}

/* ---- get ---- */

static void get_first(side_t *side)
{
    for (unsigned i = 0; i < N_SIZES; i++) {
        ptl_event_t event;

        memset(mine, 0, sizes[i]);
        meet(side);
        same(PtlGet(side->md, (uintptr_t)mine, sizes[i], side->peer, side->pt,
                    i, 0, &mine[i]),
             PTL_OK);
        event = expect(side, PTL_EVENT_REPLY, PTL_NI_OK);
        check(event.user_ptr == &mine[i]);
        same(event.mlength, sizes[i]);
        check(filled(mine, sizes[i], i));
    }
    meet(side);
    same(PtlGet(side->md, (uintptr_t)mine, 100, side->peer, side->pt, 1000, 60,
                NULL),
         PTL_OK);
    same(expect(side, PTL_EVENT_REPLY, PTL_NI_OK).mlength, 40);
    check(memcmp(mine, "tail", 4) == 0);
    same(PtlGet(side->md, (uintptr_t)mine, 100, side->peer, side->pt, 1001, 0,
                NULL),
         PTL_OK);
    same(expect(side, PTL_EVENT_REPLY, PTL_NI_DROPPED).mlength, 0);
    meet(side);
    expect_nothing(side);
}

static void get_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 100, 1000);
    ptl_event_t event;

    for (unsigned i = 0; i < N_SIZES; i++) {
        ptl_me_t one = entry_for(theirs, sizes[i], i);

        one.options |= PTL_ME_OP_GET;
        fill(theirs, sizes[i], i);
        append(side, &one, PTL_PRIORITY_LIST, &theirs[i]);
        meet(side);
        event = expect(side, PTL_EVENT_GET, PTL_NI_OK);
        check(event.user_ptr == &theirs[i]);
        same(event.mlength, sizes[i]);
    }
    memcpy(theirs + 60, "tail", 4);
    me.options |= PTL_ME_OP_GET;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    event = expect(side, PTL_EVENT_GET, PTL_NI_OK);
    same(event.rlength, 100);
    same(event.mlength, 40);
    meet(side);
    expect_nothing(side);
}

CASE(get)
{
    pair(get_first, get_second);
}
