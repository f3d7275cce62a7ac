/* A wire that loses, duplicates and reorders frames. */
#include "harness.h"

static uint8_t mine[2 << 20], theirs[2 << 20];

/* ---- faults of the wire change nothing but the counters ---- */

enum { LOSSY = 300 };

static size_t lossy_size(unsigned i)
{
    static const size_t some[] = {8, 64, 1000, 9000, 150000, 0};

    return some[i % 6];
}

static void lossy_first(side_t *side)
{
    psni_counters_t counters;

    fill(mine, sizeof(mine), 5);
    meet(side);
    for (unsigned i = 0; i < LOSSY; i++)
        put(side, mine, lossy_size(i), 1, i, PTL_ACK_REQ);
    for (unsigned i = 0; i < LOSSY; i++)
        same(expect(side, PTL_EVENT_ACK, PTL_NI_OK).mlength, lossy_size(i));
    for (unsigned i = 0; i < 30; i++) {
        same(PtlGet(side->md, (uintptr_t)theirs, 200000, side->peer, side->pt,
                    2, 0, NULL),
             PTL_OK);
        expect(side, PTL_EVENT_REPLY, PTL_NI_OK);
        check(filled(theirs, 200000, 6));
    }
    counters = counted(side);
    check(counters.dropped > 0 && counters.duplicated > 0);
    check(counters.reordered > 0 && counters.delayed > 0);
    check(counters.frames_resent > 0);
    same(counters.peers_lost, 0);
    meet(side);
    expect_nothing(side);
}

static void lossy_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, sizeof(theirs), 1);
    ptl_me_t source = entry_for(mine, 200000, 2);

    fill(mine, 200000, 6);
    source.options =
        PTL_ME_OP_GET | PTL_ME_EVENT_COMM_DISABLE | PTL_ME_EVENT_LINK_DISABLE;
    append(side, &source, PTL_PRIORITY_LIST, NULL);
    me.options &= ~PTL_ME_USE_ONCE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    for (unsigned i = 0; i < LOSSY; i++) {
        ptl_event_t event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);

        same(event.hdr_data, i);
        same(event.mlength, lossy_size(i));
    }
    check(filled(theirs, 150000, 5));
    meet(side);
    expect_nothing(side);
}

static void lossy(unsigned rate)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.drop = setup.settings.duplicate = rate;
    setup.settings.reorder = setup.settings.delay = rate;
    setup.settings.delay_us = 2000;
    setup.settings.seed = 1;
    pair(lossy_first, lossy_second);
}

CASE(lossy_wire)
{
    lossy(10000);
}

CASE(very_lossy_wire)
{
    lossy(150000);
}

/* ---- both sides put first, over a wire that loses greetings ---- */

static void opening_side(side_t *side)
{
    for (unsigned round = 0; round < 15; round++) {
        ptl_me_t me = entry_for(theirs, 8, 1);
        bool acked = false, came = false;

        setup.settings.seed++;
        open_side(side);
        admit(side);
        append(side, &me, PTL_PRIORITY_LIST, NULL);
        meet(side);
        put(side, &round, sizeof(round), 1, 0, PTL_ACK_REQ);
        while (!acked || !came) {
            ptl_event_t event = next_event(side);

            same(event.ni_fail_type, PTL_NI_OK);
            acked |= event.type == PTL_EVENT_ACK;
            came |= event.type == PTL_EVENT_PUT;
        }
        check(memcmp(theirs, &round, sizeof(round)) == 0);
        meet(side);
        expect_nothing(side);
        meet(side);
        if (round < 14)
            close_side(side);
    }
}

static void opening_first(side_t *side)
{
    close_side(side);
    opening_side(side);
}

static void opening_second(side_t *side)
{
    close_side(side);
    setup.settings.seed = 1000;
    opening_side(side);
}

CASE(both_open_at_once)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.drop = 250000;
    setup.settings.duplicate = 100000;
    pair(opening_first, opening_second);
}
