/* Bad arguments, and frames of strangers, all of which the NI refuses. */

#include "harness.h"

static uint8_t mine[100000], theirs[100000];

/* ---- callers ---- */

static void handles_side(side_t *side)
{
    ptl_handle_any_t ni,
        wrong[] = {0,           1,          0x7fffffff, PTL_INVALID_HANDLE,
                   PTL_EQ_NONE, PTL_CT_NONE};
    ptl_handle_eq_t eq;
    ptl_event_t event;
    ptl_handle_md_t old = side->md;
    ptl_md_t md = {.ct_handle = PTL_CT_NONE, .eq_handle = PTL_EQ_NONE};

    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        same(PtlEQGet(wrong[i], &event), PTL_ARG_INVALID);
        same(PtlEQFree(wrong[i]), PTL_ARG_INVALID);
        same(PtlCTFree(wrong[i]), PTL_ARG_INVALID);
        same(PtlMDRelease(wrong[i]), PTL_ARG_INVALID);
        same(PtlMEUnlink(wrong[i]), PTL_ARG_INVALID);
    }
    same(PtlNIHandle(side->eq, &ni), PTL_OK);
    check(PtlHandleIsEqual(ni, side->ni));
    same(PtlNIHandle(PTL_INVALID_HANDLE, &ni), PTL_ARG_INVALID);
    same(PtlEQFree(side->eq), PTL_IN_USE);
    same(PtlMDRelease(side->md), PTL_OK);
    same(PtlMDRelease(old), PTL_ARG_INVALID);
    same(PtlMDBind(side->ni, &md, &side->md), PTL_OK);
    /* the same slot, but not the same handle */
    check(!PtlHandleIsEqual(old, side->md));
    same(PtlPTFree(side->ni, side->pt), PTL_OK);
    same(PtlPTFree(side->ni, side->pt), PTL_ARG_INVALID);
    same(PtlEQFree(side->eq), PTL_OK);
    same(PtlEQGet(side->eq, &event), PTL_ARG_INVALID);
    same(PtlEQAlloc(side->ni, 10, &eq), PTL_OK);
    check(eq != side->eq);
}

CASE(handles)
{
    pair(handles_side, handles_side);
}

static void arguments_side(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 0);
    ptl_md_t md = {.start = mine,
                   .length = 100,
                   .eq_handle = PTL_EQ_NONE,
                   .ct_handle = PTL_CT_NONE};
    ptl_process_t nobody = {.phys = {PTL_NID_ANY, PTL_PID_ANY}};
    ptl_handle_any_t handle;
    ptl_pt_index_t pt;

    same(PtlPTAlloc(side->ni, PTL_PT_FLOWCTRL, PTL_EQ_NONE, PTL_PT_ANY, &pt),
         PTL_PT_EQ_NEEDED);
    same(PtlPTAlloc(side->ni, 1u << 20, side->eq, PTL_PT_ANY, &pt),
         PTL_ARG_INVALID);
    same(PtlPTAlloc(side->ni, 0, side->eq, side->pt, &pt), PTL_PT_IN_USE);
    same(PtlPTAlloc(side->ni, 0, side->eq, 100000, &pt), PTL_ARG_INVALID);
    same(PtlMEAppend(side->ni, 200, &me, 0, NULL, &handle), PTL_ARG_INVALID);
    same(PtlMEAppend(side->ni, side->pt, &me, 2, NULL, &handle),
         PTL_ARG_INVALID);
    me.options |= 1u << 30;
    same(PtlMEAppend(side->ni, side->pt, &me, 0, NULL, &handle),
         PTL_ARG_INVALID);
    me.options = PTL_ME_OP_PUT | PTL_IOVEC;
    me.length = 65; /* more pieces than allowed */
    same(PtlMEAppend(side->ni, side->pt, &me, 0, NULL, &handle),
         PTL_ARG_INVALID);
    same(PtlMDBind(side->ni, &md, &handle), PTL_OK);
    same(PtlPut(handle, 101, 0, PTL_NO_ACK_REQ, side->peer, 0, 0, 0, NULL, 0),
         PTL_ARG_INVALID);
    same(PtlPut(handle, 50, 51, PTL_NO_ACK_REQ, side->peer, 0, 0, 0, NULL, 0),
         PTL_ARG_INVALID);
    same(PtlPut(handle, 0, 8, 9, side->peer, 0, 0, 0, NULL, 0),
         PTL_ARG_INVALID);
    same(PtlPut(handle, 0, 8, PTL_NO_ACK_REQ, nobody, 0, 0, 0, NULL, 0),
         PTL_ARG_INVALID);
    same(PtlMDRelease(handle), PTL_OK); /* refused puts left none */
    md.options = 1u << 30;
    same(PtlMDBind(side->ni, &md, &handle), PTL_ARG_INVALID);
    md.options = 0;
    md.eq_handle = side->ni;
    same(PtlMDBind(side->ni, &md, &handle), PTL_ARG_INVALID);
    expect_nothing(side);
}

CASE(arguments)
{
    pair(arguments_side, arguments_side);
}

static void limits_side(side_t *side)
{
    ptl_ni_limits_t wanted = {.max_entries = 3,
                              .max_mds = 2,
                              .max_cts = 1,
                              .max_eqs = 1,
                              .max_pt_index = 1,
                              .max_list_size = 2,
                              .max_msg_size = 1000};
    ptl_ni_limits_t got;
    ptl_handle_any_t handle;
    ptl_me_t me = entry_for(theirs, 8, 0);
    ptl_pt_index_t pts[2];
    ptl_md_t md = {.length = PTL_SIZE_MAX,
                   .eq_handle = PTL_EQ_NONE,
                   .ct_handle = PTL_CT_NONE};
    ptl_handle_ni_t ni;

    same(PtlNIInit(1, setup.ni_options, PTL_PID_ANY, &wanted, &got, &ni),
         PTL_OK);
    same(got.max_entries, 3);
    same(got.max_msg_size, 1000);
    check(got.max_unexpected_headers > 0);
    same(PtlEQAlloc(ni, 8, &handle), PTL_OK);
    same(PtlEQAlloc(ni, 8, &handle), PTL_NO_SPACE);
    same(PtlCTAlloc(ni, &handle), PTL_OK);
    same(PtlCTAlloc(ni, &handle), PTL_NO_SPACE);
    for (unsigned i = 0; i < 2; i++)
        same(PtlPTAlloc(ni, 0, PTL_EQ_NONE, PTL_PT_ANY, &pts[i]), PTL_OK);
    same(PtlPTAlloc(ni, 0, PTL_EQ_NONE, PTL_PT_ANY, &pts[0]), PTL_PT_FULL);
    for (unsigned i = 0; i < 2; i++)
        same(PtlMEAppend(ni, pts[0], &me, 0, NULL, &handle), PTL_OK);
    same(PtlMEAppend(ni, pts[0], &me, 0, NULL, &handle), PTL_LIST_TOO_LONG);
    same(PtlMEAppend(ni, pts[1], &me, 0, NULL, &handle), PTL_OK);
    same(PtlMEAppend(ni, pts[1], &me, 0, NULL, &handle), PTL_NO_SPACE);
    same(PtlMDBind(ni, &md, &handle), PTL_OK);
    same(PtlPut(handle, 0, 1001, PTL_NO_ACK_REQ, side->me, 0, 0, 0, NULL, 0),
         PTL_ARG_INVALID);
    same(PtlNIFini(ni), PTL_OK);
    same(PtlNIFini(ni), PTL_ARG_INVALID);
}

CASE(limits)
{
    pair(limits_side, limits_side);
}

static void shared_side(side_t *side)
{
    ptl_handle_ni_t again, other;
    ptl_process_t id;

    same(PtlNIInit(PTL_IFACE_DEFAULT, setup.ni_options, PTL_PID_ANY, NULL, NULL,
                   &again),
         PTL_OK);
    same(again, side->ni);
    same(PtlNIInit(PTL_IFACE_DEFAULT, setup.ni_options, 1, NULL, NULL, &other),
         PTL_ARG_INVALID);
    same(PtlNIInit(2, setup.ni_options, PTL_PID_ANY, NULL, NULL, &other),
         PTL_OK);
    check(other != side->ni);
    same(PtlGetId(other, &id), PTL_OK);
    check(id.phys.pid != side->me.phys.pid);
    same(PtlNIFini(other), PTL_OK);
    same(PtlGetId(other, &id), PTL_ARG_INVALID);
    same(PtlNIFini(again), PTL_OK);
    /* the handle of the first PtlNIInit is still valid */
    same(PtlGetId(side->ni, &id), PTL_OK);
    same(PtlNIInit(2, PTL_NI_MATCHING | PTL_NI_LOGICAL, PTL_PID_ANY, NULL, NULL,
                   &other),
         PTL_ARG_INVALID);
    same(PtlNIInit(2, PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL, &other),
         PTL_ARG_INVALID);
}

CASE(shared_interface)
{
    pair(shared_side, shared_side);
}

/* 192.0.2.1 is reserved for documentation. */
#define NOBODYS_ADDRESS 0xc0000201u

CASE(settings)
{
    psni_settings_t settings = {.drop = 1000001};
    ptl_handle_ni_t ni;

    same(psni_configure(&settings), PTL_ARG_INVALID);
    same(softni_fault_set("drop", 1000001), PTL_ARG_INVALID);
    same(softni_fault_set("drops", 1), PTL_ARG_INVALID);
    same(softni_fault_set("drop", 1000000), PTL_OK);
    same(softni_fault_set("drop", 0), PTL_OK);
    same(PtlNIInit(0, setup.ni_options, PTL_PID_ANY, NULL, NULL, &ni),
         PTL_NO_INIT);
    same(PtlInit(), PTL_OK);
    same(PtlNIInit(NOBODYS_ADDRESS, setup.ni_options, PTL_PID_ANY, NULL, NULL,
                   &ni),
         PTL_FAIL);
    PtlFini();
}

/* ---- strangers ---- */

static void refuse_stranger(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 1);

    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    meet(side);
    expect_nothing(side);
    same(counted(side).bytes_copied, 0);
}

/* A stranger does not know the cookie, so none of its operations begins. */
static void be_stranger(side_t *side)
{
    meet(side);
    same(PtlPut(side->md, 0, 0, PTL_ACK_REQ, side->peer, side->pt, 1, 0, NULL,
                0),
         PTL_ARG_INVALID);
    meet(side);
}

CASE(strangers)
{
    setup.strangers = true;
    pair(refuse_stranger, be_stranger);
}

static void refuse_liar(side_t *side)
{
    refuse_stranger(side);
    check(counted(side).frames_ignored > 0);
}

static void lie(side_t *side)
{
    uint8_t cookie[SOFTNI_COOKIE_BYTES] = {1, 2, 3};

    same(softni_admit(side->ni, side->peer, cookie), PTL_OK);
    meet(side);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_SEND, PTL_NI_OK);
    expect(side, PTL_EVENT_ACK, PTL_NI_UNDELIVERABLE);
    meet(side);
}

CASE(wrong_cookie)
{
    setup.strangers = true;
    setup.settings.dead_after = 5;
    pair(refuse_liar, lie);
}

static void keyed_first(side_t *side)
{
    meet(side);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
}

static void keyed_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 1);

    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
}

CASE(common_key)
{
    setup.strangers = true;
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.has_key = true;
    memcpy(setup.settings.key, "0123456789abcdef", SOFTNI_COOKIE_BYTES);
    pair(keyed_first, keyed_second);
}
