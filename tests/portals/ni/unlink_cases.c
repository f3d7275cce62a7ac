/* Unlinking entries that are in use, or that messages have used up. */
#include "harness.h"

static uint8_t mine[1 << 20], theirs[1 << 20];

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

CASE(unlink)
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

CASE(unlink_used)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(used_first, used_second);
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE; /* pair() has reset it */
    setup.settings.unlink_used = true;
    pair(used_first, used_second);
}
