/* Peers that die or close, and addresses without a peer. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

/* so long that a put of all takes longer than this process may be kept from
 * running */
static uint8_t mine[128 << 20], theirs[128 << 20];

static void wait_to_die(side_t *side)
{
    static uint8_t place[1 << 20];
    ptl_me_t me = entry_for(place, sizeof(place), 1);

    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    for (;;)
        pause();
}

static void survive_target(side_t *side)
{
    meet(side);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    kill_other(side);
    put(side, mine, 1 << 20, 1, 1, PTL_ACK_REQ);
    put(side, mine, 8, 1, 2, PTL_ACK_REQ);
    same(PtlGet(side->md, (uintptr_t)mine, 8, side->peer, side->pt, 1, 0, NULL),
         PTL_OK);
    same(expect(side, PTL_EVENT_ACK, PTL_NI_UNDELIVERABLE).hdr_data, 1);
    same(expect(side, PTL_EVENT_ACK, PTL_NI_UNDELIVERABLE).hdr_data, 2);
    expect(side, PTL_EVENT_REPLY, PTL_NI_UNDELIVERABLE);
    same(counted(side).peers_lost, 1);
    /* puts posted after the loss fail, too */
    put(side, mine, 8, 1, 3, PTL_ACK_REQ);
    same(expect(side, PTL_EVENT_ACK, PTL_NI_UNDELIVERABLE).hdr_data, 3);
    same(PtlMDRelease(side->md), PTL_OK);
}

CASE(target_dies)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(survive_target, wait_to_die);
}

/* The initiator dies in the middle of a put: the target gets its entry back. */
static void survive_initiator(side_t *side)
{
    ptl_me_t me = entry_for(theirs, sizeof(theirs), 1);
    ptl_event_t event;

    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    while (counted(side).bytes_copied == 0)
        same(PtlEQGet(side->eq, &event), PTL_EQ_EMPTY);
    kill_other(side);
    event = expect(side, PTL_EVENT_PUT, PTL_NI_UNDELIVERABLE);
    same(event.rlength, sizeof(mine));
    check(event.mlength < sizeof(mine));
    expect_nothing(side);
}

static void die_half_way(side_t *side)
{
    meet(side);
    put(side, mine, sizeof(mine), 1, 0, PTL_NO_ACK_REQ);
    for (;;)
        pause();
}

CASE(initiator_dies)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    /* keeps the put from completing before the kill */
    setup.settings.drop = 500000;
    setup.settings.seed = 2;
    pair(survive_initiator, die_half_way);
}

static void call_nobody(side_t *side)
{
    uint8_t cookie[SOFTNI_COOKIE_BYTES] = {0};

    meet(side);
    meet(side); /* the other side has closed */
    side->peer.phys.pid = (ptl_pid_t)told(side);
    same(softni_admit(side->ni, side->peer, cookie), PTL_OK);
    put(side, mine, 1000, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_SEND, PTL_NI_UNDELIVERABLE);
    expect(side, PTL_EVENT_ACK, PTL_NI_UNDELIVERABLE);
}

static void be_nobody(side_t *side)
{
    meet(side);
    close_side(side);
    meet(side);
    tell(side, side->me.phys.pid);
    open_side(side);
}

CASE(nobody_there)
{
    pair(call_nobody, be_nobody);
}

/* A stopped target counts as slow until dead_after makes it count as dead. */
static void call_stopped(side_t *side)
{
    int status;

    meet(side);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    check(kill(side->other, SIGSTOP) == 0);
    check(waitpid(side->other, &status, WUNTRACED) == side->other);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_UNDELIVERABLE);
    check(kill(side->other, SIGCONT) == 0);
    kill_other(side);
}

CASE(silent_target)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.dead_after = 9;
    pair(call_stopped, wait_to_die);
}

/* An initiator that was stopped for longer than its patience finds the answer
 * that has arrived meanwhile. */
#define HELD_UP_NS 1500000000u

static void hold_up(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 1);

    append(side, &me, PTL_PRIORITY_LIST, NULL);
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
    for (;;) {
        usleep(2 * HELD_UP_NS / 1000);
        check(kill(getppid(), SIGCONT) == 0);
    }
}

static void be_held_up(side_t *side)
{
    ptl_event_t event;
    int status;

    meet(side);
    same(softni_patience(side->ni, side->peer, HELD_UP_NS), PTL_OK);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    check(kill(side->other, SIGSTOP) == 0);
    check(waitpid(side->other, &status, WUNTRACED) == side->other);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    while (counted(side).frames_resent == 0)
        same(PtlEQGet(side->eq, &event), PTL_EQ_EMPTY);
    check(kill(side->other, SIGCONT) == 0);
    check(raise(SIGSTOP) == 0);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    kill_other(side);
}

CASE(held_up_initiator)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(be_held_up, hold_up);
}

/* A new process opens an interface under the address of its predecessor. */
static void reborn_side(side_t *side)
{
    ptl_pid_t pid = side->me.phys.pid;
    ptl_me_t me = entry_for(theirs, 8, 1);
    ptl_md_t md = {.length = PTL_SIZE_MAX,
                   .options = PTL_MD_EVENT_SEND_DISABLE,
                   .ct_handle = PTL_CT_NONE};
    ptl_handle_ni_t again;

    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
    meet(side);
    close_side(side);
    same(PtlInit(), PTL_OK);
    same(PtlNIInit(PTL_IFACE_DEFAULT, setup.ni_options, pid, NULL, NULL,
                   &side->ni),
         PTL_OK);
    same(PtlNIInit(7, setup.ni_options, pid, NULL, NULL, &again),
         PTL_PID_IN_USE);
    same(PtlEQAlloc(side->ni, 100, &side->eq), PTL_OK);
    same(PtlPTAlloc(side->ni, 0, side->eq, PTL_PT_ANY, &side->pt), PTL_OK);
    md.eq_handle = side->eq;
    same(PtlMDBind(side->ni, &md, &side->md), PTL_OK);
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    admit(side);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
}

static void faithful_side(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 1);

    meet(side);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    meet(side);
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    admit(side);
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
}

CASE(same_address_again)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(faithful_side, reborn_side);
}

/* Puts are delivered although the initiator closes its NI at once. */
static void hasty_first(side_t *side)
{
    meet(side);
    for (unsigned i = 0; i < 200; i++)
        put(side, mine, 200, 1, i, PTL_NO_ACK_REQ);
}

static void hasty_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 1);

    me.options &= ~PTL_ME_USE_ONCE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    for (unsigned i = 0; i < 200; i++)
        same(expect(side, PTL_EVENT_PUT, PTL_NI_OK).hdr_data, i);
}

CASE(closing_delivers)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.drop = 10000;
    setup.settings.seed = 4;
    pair(hasty_first, hasty_second);
}
