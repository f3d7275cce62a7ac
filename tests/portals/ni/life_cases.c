/* Many operations in flight, memory that moves while the target makes no call,
 * and callers that sleep, wait for a counter, or are threads. */
#include <poll.h>
#include <pthread.h>

#include "harness.h"

static uint8_t mine[2 << 20], theirs[2 << 20];

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

CASE(thousand_under_way)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(thousand_first, thousand_second);
}

/* ---- memory of a target that makes no call is written and read ---- */

static void computing_first(side_t *side)
{
    fill(mine, sizeof(mine), 8);
    meet(side);
    put(side, mine, 1 << 20, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    same(PtlGet(side->md, (uintptr_t)theirs, 1 << 20, side->peer, side->pt, 1,
                0, NULL),
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

CASE(progress_without_calls)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(computing_first, computing_second);
}

/* ---- sleeping on a descriptor ---- */

static ptl_event_t sleep_for_event(const side_t *side)
{
    ptl_event_t event;
    int fd, rc;

    same(softni_eq_fd(side->eq, &fd), PTL_OK);
    while ((rc = PtlEQGet(side->eq, &event)) == PTL_EQ_EMPTY) {
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};

        if (softni_eq_arm(side->eq) != PTL_EQ_EMPTY)
            continue;
        check(poll(&pollfd, 1, (int)(PATIENCE_NS / 1000000)) == 1);
    }
    same(rc, PTL_OK);
    return event;
}

enum { NAPS = 500, AWAKE = 1000 };

/* Polls so often that the thread that wakes sleepers becomes idle. */
static void stay_awake(const side_t *side)
{
    ptl_event_t event;

    for (unsigned i = 0; i < AWAKE; i++)
        same(PtlEQGet(side->eq, &event), PTL_EQ_EMPTY);
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

CASE(sleeping)
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

/* An NI that has a peer and a waiting caller uses no CPU time. */
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
    same(PtlEQPoll(&side->eq, 1, 1000, &event, &which), PTL_EQ_EMPTY);
    check(cpu_ns() - before < 100000000);
    meet(side);
}

CASE(sleeping_costs_nothing)
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

    same(PtlEQAlloc(side->ni, 10, &eqs[0]), PTL_OK);
    same(PtlEQPoll(eqs, 2, 30, &event, &which), PTL_EQ_EMPTY);
    check(psc_clock_now() - before >= 30000000);
    same(PtlEQPoll(eqs, 2, 0, &event, &which), PTL_EQ_EMPTY);
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    tell(side, 1);
    same(PtlEQPoll(eqs, 2, PTL_TIME_FOREVER, &event, &which), PTL_OK);
    same(which, 1);
    same(event.type, PTL_EVENT_PUT);
}

static void timeouts_second(side_t *side)
{
    same(told(side), 1);
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
}

CASE(timeouts)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(timeouts_first, timeouts_second);
}

/* ---- a counter wakes waiting callers, also from another thread ---- */

static void *increment(void *argument)
{
    const ptl_handle_ct_t *ct = argument;

    same(PtlCTInc(*ct, (ptl_ct_event_t){.success = 1}), PTL_OK);
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
        same(PtlCTAlloc(side->ni, &cts[i]), PTL_OK);
    same(PtlCTPoll(cts, tests, 2, 10, &value, &which), PTL_CT_NONE_REACHED);
    check(pthread_create(&thread, NULL, increment, &cts[1]) == 0);
    same(PtlCTPoll(cts, tests, 2, PTL_TIME_FOREVER, &value, &which), PTL_OK);
    same(which, 1);
    same(value.success, 1);
    check(pthread_join(thread, NULL) == 0);
}

CASE(counter_wakes)
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

        same(PtlPut(worker->md, (uintptr_t)from, 4096, PTL_ACK_REQ, side->peer,
                    side->pt, worker->number, 0, NULL, i),
             PTL_OK);
        same(PtlEQWait(worker->eq, &event), PTL_OK);
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
        same(PtlEQAlloc(side->ni, 100, &workers[i].eq), PTL_OK);
        md.eq_handle = workers[i].eq;
        same(PtlMDBind(side->ni, &md, &workers[i].md), PTL_OK);
        check(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
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

CASE(many_threads)
{
    pair(threads_first, threads_second);
}
