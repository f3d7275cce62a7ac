/* A wire that loses, peers that die, callers that sleep or compute. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

static uint8_t mine[2 << 20], theirs[2 << 20];

/* ---- knobs below the guarantee change nothing but the counters ---- */

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
        same(ptl->PtlGet(side->md, (uintptr_t)theirs, 200000, side->peer,
                         side->pt, 2, 0, NULL),
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
    source.options = PTL_ME_OP_GET | PTL_ME_EVENT_COMM_DISABLE |
                     PTL_ME_EVENT_LINK_DISABLE;
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

void case_lossy_wire(void)
{
    lossy(10000);
}

void case_very_lossy_wire(void)
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

void case_both_open_at_once(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.drop = 250000;
    setup.settings.duplicate = 100000;
    pair(opening_first, opening_second);
}

/* ---- a thousand long puts at once ---- */

enum { MANY = 1000, LONG = 20000 };

static void thousand_first(side_t *side)
{
    fill(mine, sizeof(mine), 2);
    meet(side);
    for (unsigned i = 0; i < MANY; i++)
        put(side, mine + i, LONG, i, i, PTL_ACK_REQ);
    for (unsigned i = 0; i < MANY; i++)
        expect(side, PTL_EVENT_ACK, PTL_NI_OK);
}

static void thousand_second(side_t *side)
{
    uint8_t *place = malloc((size_t)MANY * LONG);
    ptl_me_t me = entry_for(NULL, LONG, 0);

    for (unsigned i = 0; i < MANY; i++) {
        unsigned at = (i * 7 + 3) % MANY; /* not in the order of the puts */

        me.start = place + (size_t)at * LONG;
        me.match_bits = at;
        append(side, &me, PTL_PRIORITY_LIST, (void *)(uintptr_t)at);
    }
    meet(side);
    fill(mine, sizeof(mine), 2);
    for (unsigned i = 0; i < MANY; i++) {
        ptl_event_t event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);

        same((uintptr_t)event.user_ptr, i);
        check(memcmp(event.start, mine + i, LONG) == 0);
    }
    free(place);
}

void case_thousand_under_way(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(thousand_first, thousand_second);
}

/* ---- the target does not call, and yet its memory is written and read ---- */

static void computing_first(side_t *side)
{
    fill(mine, sizeof(mine), 8);
    meet(side);
    put(side, mine, 1 << 20, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    same(ptl->PtlGet(side->md, (uintptr_t)theirs, 1 << 20, side->peer, side->pt,
                     1, 0, NULL),
         PTL_OK);
    expect(side, PTL_EVENT_REPLY, PTL_NI_OK);
    check(filled(theirs, 1 << 20, 8));
    meet(side);
}

static void computing_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 1 << 20, 1);

    me.options = PTL_ME_OP_PUT | PTL_ME_OP_GET | PTL_ME_EVENT_LINK_DISABLE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    meet(side); /* no call of the interface in between */
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
    expect(side, PTL_EVENT_GET, PTL_NI_OK);
}

void case_progress_without_calls(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(computing_first, computing_second);
}

/* ---- sleeping on a descriptor ---- */

static ptl_event_t sleep_for_event(const side_t *side)
{
    ptl_event_t event;
    int fd, rc;

    same(ptl->eq_fd(side->eq, &fd), PTL_OK);
    while ((rc = ptl->PtlEQGet(side->eq, &event)) == PTL_EQ_EMPTY) {
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};

        if (ptl->eq_arm(side->eq) != PTL_EQ_EMPTY)
            continue;
        check(poll(&pollfd, 1, (int)(PATIENCE_NS / 1000000)) == 1);
    }
    same(rc, PTL_OK);
    return event;
}

enum { NAPS = 500, AWAKE = 1000 };

/* Long enough for what wakes sleepers to rest. */
static void stay_awake(const side_t *side)
{
    ptl_event_t event;

    for (unsigned i = 0; i < AWAKE; i++)
        same(ptl->PtlEQGet(side->eq, &event), PTL_EQ_EMPTY);
}

static void sleeping_first(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 1);

    me.options &= ~PTL_ME_USE_ONCE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    for (unsigned i = 0; i < NAPS; i++) {
        if (i % 50 == 0)
            stay_awake(side);
        put(side, mine, 8, 1, i, PTL_NO_ACK_REQ);
        same(sleep_for_event(side).hdr_data, i);
    }
}

static void sleeping_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 1);

    me.options &= ~PTL_ME_USE_ONCE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    for (unsigned i = 0; i < NAPS; i++) {
        same(sleep_for_event(side).hdr_data, i);
        put(side, mine, 8, 1, i, PTL_NO_ACK_REQ);
    }
}

void case_sleeping(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(sleeping_first, sleeping_second);
}

static int64_t cpu_ns(void)
{
    struct timespec used;

    check(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* An NI that has met its peer, and whose caller waits, uses no processor. */
static void frugal_side(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 1);
    ptl_event_t event;
    unsigned which;
    int64_t before;

    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    next_event(side);
    next_event(side);
    meet(side);
    before = cpu_ns();
    same(ptl->PtlEQPoll(&side->eq, 1, 1000, &event, &which), PTL_EQ_EMPTY);
    check(cpu_ns() - before < 100000000);
    meet(side);
}

void case_sleeping_costs_nothing(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.spin_us = 20;
    pair(frugal_side, frugal_side);
}

static void timeouts_first(side_t *side)
{
    ptl_handle_eq_t eqs[2] = {0, side->eq};
    ptl_me_t me = entry_for(theirs, 8, 1);
    ptl_event_t event;
    unsigned which = 7;
    int64_t before = psc_clock_now();

    same(ptl->PtlEQAlloc(side->ni, 10, &eqs[0]), PTL_OK);
    same(ptl->PtlEQPoll(eqs, 2, 30, &event, &which), PTL_EQ_EMPTY);
    check(psc_clock_now() - before >= 30000000);
    same(ptl->PtlEQPoll(eqs, 2, 0, &event, &which), PTL_EQ_EMPTY);
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    tell(side, 1);
    same(ptl->PtlEQPoll(eqs, 2, PTL_TIME_FOREVER, &event, &which), PTL_OK);
    same(which, 1);
    same(event.type, PTL_EVENT_PUT);
}

static void timeouts_second(side_t *side)
{
    same(told(side), 1);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
}

void case_timeouts(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(timeouts_first, timeouts_second);
}

/* ---- a counter wakes who waits, also from another thread ---- */

static void *increment(void *argument)
{
    const ptl_handle_ct_t *ct = argument;

    same(ptl->PtlCTInc(*ct, (ptl_ct_event_t){.success = 1}), PTL_OK);
    return NULL;
}

static void counter_side(side_t *side)
{
    ptl_handle_ct_t cts[2];
    ptl_size_t tests[2] = {1, 1};
    ptl_ct_event_t value;
    pthread_t thread;
    unsigned which;

    for (unsigned i = 0; i < 2; i++)
        same(ptl->PtlCTAlloc(side->ni, &cts[i]), PTL_OK);
    same(ptl->PtlCTPoll(cts, tests, 2, 10, &value, &which),
         PTL_CT_NONE_REACHED);
    check(pthread_create(&thread, NULL, increment, &cts[1]) == 0);
    same(ptl->PtlCTPoll(cts, tests, 2, PTL_TIME_FOREVER, &value, &which),
         PTL_OK);
    same(which, 1);
    same(value.success, 1);
    check(pthread_join(thread, NULL) == 0);
}

void case_counter_wakes(void)
{
    pair(counter_side, counter_side);
}

/* ---- threads ---- */

enum { THREADS = 4, PUTS = 200 };

typedef struct worker {
    const side_t *side;
    pthread_t thread;
    unsigned number;
    ptl_handle_eq_t eq;
    ptl_handle_md_t md;
} worker_t;

static void *work(void *argument)
{
    worker_t *worker = argument;
    const side_t *side = worker->side;
    uint8_t *from = mine + worker->number * 4096;

    for (unsigned i = 0; i < PUTS; i++) {
        ptl_event_t event;

        same(ptl->PtlPut(worker->md, (uintptr_t)from, 4096, PTL_ACK_REQ,
                         side->peer, side->pt, worker->number, 0, NULL, i),
             PTL_OK);
        same(ptl->PtlEQWait(worker->eq, &event), PTL_OK);
        same(event.type, PTL_EVENT_ACK);
        same(event.ni_fail_type, PTL_NI_OK);
    }
    return NULL;
}

static void threads_first(side_t *side)
{
    ptl_md_t md = {.length = PTL_SIZE_MAX,
                   .options = PTL_MD_EVENT_SEND_DISABLE,
                   .ct_handle = PTL_CT_NONE};
    worker_t workers[THREADS];

    meet(side);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (worker_t){.side = side, .number = i};
        same(ptl->PtlEQAlloc(side->ni, 100, &workers[i].eq), PTL_OK);
        md.eq_handle = workers[i].eq;
        same(ptl->PtlMDBind(side->ni, &md, &workers[i].md), PTL_OK);
        check(pthread_create(&workers[i].thread, NULL, work, &workers[i]) ==
              0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        check(pthread_join(workers[i].thread, NULL) == 0);
}

static void threads_second(side_t *side)
{
    uint64_t next[THREADS] = {0};

    for (unsigned i = 0; i < THREADS; i++) {
        ptl_me_t me = entry_for(theirs + i * 4096, 4096, i);

        me.options &= ~PTL_ME_USE_ONCE;
        append(side, &me, PTL_PRIORITY_LIST, NULL);
    }
    meet(side);
    for (unsigned i = 0; i < THREADS * PUTS; i++) {
        ptl_event_t event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);

        same(event.hdr_data, next[event.match_bits]++);
    }
}

void case_many_threads(void)
{
    pair(threads_first, threads_second);
}

/* ---- death ---- */

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
    same(ptl->PtlGet(side->md, (uintptr_t)mine, 8, side->peer, side->pt, 1, 0,
                     NULL),
         PTL_OK);
    same(expect(side, PTL_EVENT_ACK, PTL_NI_UNDELIVERABLE).hdr_data, 1);
    same(expect(side, PTL_EVENT_ACK, PTL_NI_UNDELIVERABLE).hdr_data, 2);
    expect(side, PTL_EVENT_REPLY, PTL_NI_UNDELIVERABLE);
    same(counted(side).peers_lost, 1);
    put(side, mine, 8, 1, 3, PTL_ACK_REQ); /* and later ones too */
    same(expect(side, PTL_EVENT_ACK, PTL_NI_UNDELIVERABLE).hdr_data, 3);
    same(ptl->PtlMDRelease(side->md), PTL_OK);
}

void case_target_dies(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(survive_target, wait_to_die);
}

/* It dies in the middle of a put: the entry is given back. */
static void survive_initiator(side_t *side)
{
    ptl_me_t me = entry_for(theirs, sizeof(theirs), 1);
    ptl_event_t event;

    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    while (counted(side).bytes_copied == 0)
        same(ptl->PtlEQGet(side->eq, &event), PTL_EQ_EMPTY);
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

void case_initiator_dies(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.drop = 500000; /* so that it does not end before */
    setup.settings.seed = 2;
    pair(survive_initiator, die_half_way);
}

static void call_nobody(side_t *side)
{
    uint8_t cookie[PSPTL_COOKIE_BYTES] = {0};

    meet(side);
    meet(side); /* the other one has closed */
    side->peer.phys.pid = (ptl_pid_t)told(side);
    same(ptl->ni_admit(side->ni, side->peer, cookie), PTL_OK);
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

void case_nobody_there(void)
{
    pair(call_nobody, be_nobody);
}

/* A target that is stopped is slow, until the settings call it dead. */
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

void case_silent_target(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.dead_after = 6;
    pair(call_stopped, wait_to_die);
}

/* A process that starts anew under the address of its predecessor. */
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
    same(ptl->PtlInit(), PTL_OK);
    same(ptl->PtlNIInit(PTL_IFACE_DEFAULT, setup.ni_options, pid, NULL, NULL,
                        &side->ni),
         PTL_OK);
    same(ptl->PtlNIInit(7, setup.ni_options, pid, NULL, NULL, &again),
         PTL_PID_IN_USE);
    same(ptl->PtlEQAlloc(side->ni, 100, &side->eq), PTL_OK);
    same(ptl->PtlPTAlloc(side->ni, 0, side->eq, PTL_PT_ANY, &side->pt),
         PTL_OK);
    md.eq_handle = side->eq;
    same(ptl->PtlMDBind(side->ni, &md, &side->md), PTL_OK);
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

void case_same_address_again(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(faithful_side, reborn_side);
}

/* What was put is delivered although the NI closes at once. */
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

void case_closing_delivers(void)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.drop = 10000;
    setup.settings.seed = 4;
    pair(hasty_first, hasty_second);
}
