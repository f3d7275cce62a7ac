/* Cases: sleeping on event_fd after arm loses no wake-up, whatever the cause,
 * and an idle interface does not wake a sleeper. The peer is in a thread of its
 * own; each interface is used by one thread only. */
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "harness.h"

/* Sleeps as the core does, after a progress that found no event. */
static void wake_sleep(ct_side_t *side)
{
    struct pollfd fd = {.fd = ct_ops->event_fd(side->iface), .events = POLLIN};
    psc_status_t status;
    int n;

    if (ct_side_progress(side) > 0)
        return;
    status = ct_ops->arm(side->iface);
    if (status == PSC_ERR_NO_RESOURCE)
        return;
    ct_check(status == PSC_OK, "arm: %s", psc_status_string(status));
    n = poll(&fd, 1, CT_PATIENCE_S * 1000);
    ct_check(n == 1, "a wake-up was lost");
}

#define wake_until(side, condition)                                            \
    do {                                                                       \
        while (!(condition))                                                   \
            wake_sleep(side);                                                  \
    } while (0)

static void wake_send(ct_end_t *end, ct_kind_t kind, size_t len)
{
    ct_send_t send;
    psc_status_t status;

    while ((status = ct_send_try(end, kind, len, 1, &send)) ==
           PSC_ERR_NO_RESOURCE) {
        free(send.buffer);
        wake_sleep(end->side);
    }
    ct_check(status >= 0, "send: %s", psc_status_string(status));
    wake_until(end->side, send.done);
    ct_check(send.status == PSC_OK, "%s", psc_status_string(send.status));
    free(send.buffer);
}

/* A random delay, to hit all points between progress and poll. */
static void wake_dawdle(unsigned *dice)
{
    *dice = *dice * 1103515245 + 12345;
    for (volatile unsigned i = 0; i < (*dice >> 16) % 4000; i++)
        ;
}

/* Runs `there` on the pair's y in a thread, `here` on x. */
static void wake_run(void *(*there)(void *), void (*here)(ct_end_t *))
{
    ct_pair_t pair;
    pthread_t thread;

    ct_pair_up(&pair);
    ct_check(pthread_create(&thread, NULL, there, &pair.y) == 0, "thread");
    here(&pair.x);
    pthread_join(thread, NULL);
    ct_pair_down(&pair);
}

#define PINGS 3000

static void ping_here(ct_end_t *end)
{
    unsigned dice = 1;

    for (uint64_t i = 1; i <= PINGS; i++) {
        wake_dawdle(&dice);
        wake_send(end, CT_BCOPY, i % 500);
        wake_until(end->side, end->received == i);
    }
}

static void *ping_there(void *arg)
{
    ct_end_t *end = arg;
    unsigned dice = 2;

    for (uint64_t i = 1; i <= PINGS; i++) {
        wake_until(end->side, end->received == i);
        wake_dawdle(&dice);
        wake_send(end, CT_BCOPY, i % 700);
    }
    return NULL;
}

CASE(wakes_for_messages, .caps = PSC_CAP_EVENT, .two_sides = true)
{
    wake_run(ping_there, ping_here);
}

#define FLOOD 3000

static void flood_here(ct_end_t *end)
{
    for (unsigned i = 0; i < FLOOD; i++)
        wake_send(end, CT_BCOPY, ct_longest(end->side, CT_BCOPY) - i % 100);
    wake_until(end->side, end->received == 1);
}

static void *flood_there(void *arg)
{
    ct_end_t *end = arg;
    unsigned dice = 3;

    while (end->received < FLOOD) {
        wake_sleep(end->side);
        wake_dawdle(&dice);
    }
    wake_send(end, CT_BCOPY, 1);
    return NULL;
}

CASE(wakes_for_room, .caps = PSC_CAP_EVENT, .two_sides = true)
{
    wake_run(flood_there, flood_here);
}

#define HUGE (6u << 20)

static void huge_here(ct_end_t *end)
{
    for (uint64_t i = 1; i <= 8; i++) {
        wake_send(end, CT_ZCOPY, HUGE + i);
        wake_until(end->side, end->received == i);
    }
}

static void *huge_there(void *arg)
{
    ct_end_t *end = arg;

    for (uint64_t i = 1; i <= 8; i++) {
        wake_until(end->side, end->received == i);
        wake_send(end, CT_ZCOPY, HUGE - i);
    }
    return NULL;
}

CASE(wakes_for_completion, .caps = PSC_CAP_EVENT | PSC_CAP_AM_ZCOPY,
     .two_sides = true)
{
    wake_run(huge_there, huge_here);
}

/* Threads that connect; a lock-free flag publishes the addresses. */
typedef struct meeting {
    ct_pair_t pair;
    uint8_t address[2][PSC_ADDRESS_MAX];
    size_t len[2];
} meeting_t;

static void *meet_there(void *arg)
{
    meeting_t *meeting = arg;
    ct_end_t *end = &meeting->pair.y;

    ct_check(ct_end_connect(end, PSC_ROLE_ACCEPTOR, ct_token,
                            meeting->address[0], meeting->len[0]) >= 0,
             "ep_connect");
    wake_until(end->side, end->up || end->failed);
    return NULL;
}

CASE(wakes_for_connect, .caps = PSC_CAP_EVENT, .two_sides = true)
{
    static meeting_t meeting;
    ct_end_t *end = &meeting.pair.x;
    pthread_t thread;

    ct_pair_open(&meeting.pair);
    meeting.len[0] = meeting.len[1] = PSC_ADDRESS_MAX;
    ct_ops->ep_address(end->ep, meeting.address[0], &meeting.len[0]);
    ct_ops->ep_address(meeting.pair.y.ep, meeting.address[1], &meeting.len[1]);
    ct_check(pthread_create(&thread, NULL, meet_there, &meeting) == 0,
             "thread");
    ct_check(ct_end_connect(end, PSC_ROLE_CONNECTOR, ct_token,
                            meeting.address[1], meeting.len[1]) >= 0,
             "ep_connect");
    wake_until(end->side, end->up || end->failed);
    pthread_join(thread, NULL);
    ct_check(end->up && meeting.pair.y.up, "%s%s", end->reason,
             meeting.pair.y.reason);
    ct_pair_down(&meeting.pair);
}

/* Both sides are idle: the descriptor stays silent. */
CASE(idle_stays_asleep, .caps = PSC_CAP_EVENT)
{
    ct_pair_t pair;
    int64_t end = psc_clock_deadline(CT_SECOND / 4);
    unsigned woken = 0;

    ct_pair_up(&pair);
    while (ct_pair_progress(&pair) > 0)
        ;
    while (psc_clock_now() < end) {
        struct pollfd fd = {.fd = ct_ops->event_fd(pair.a->iface),
                            .events = POLLIN};

        ct_side_progress(pair.a);
        if (ct_ops->arm(pair.a->iface) == PSC_OK) {
            woken += poll(&fd, 1, 50) > 0;
        } else {
            woken++;
            usleep(10000); /* late packets may take a while to be handled */
        }
    }
    ct_check(woken <= 5, "woken %u times by nothing", woken);
    ct_pair_down(&pair);
}

/* Sleeps while both sides are idle, until a sleep is not disturbed: late
 * packets (acknowledgements, retransmissions) may disturb some. */
static bool wake_settles(ct_side_t *side)
{
    struct pollfd fd = {.fd = ct_ops->event_fd(side->iface), .events = POLLIN};

    for (int i = 0; i < 50; i++) {
        ct_side_progress(side);
        if (ct_ops->arm(side->iface) == PSC_OK && poll(&fd, 1, 20) == 0)
            return true;
    }
    return false;
}

/* An event that has woken the sleeper does not wake it again. */
CASE(woken_once, .caps = PSC_CAP_EVENT)
{
    ct_pair_t pair;
    ct_send_t send;

    ct_pair_up(&pair);
    for (uint64_t i = 1; i <= 10; i++) {
        ct_check(wake_settles(pair.b), "woken for ever by nothing");
        ct_check(ct_send_try(&pair.x, CT_BCOPY, 10, 1, &send) == PSC_OK,
                 "send");
        free(send.buffer);
        while (pair.y.received < i)
            wake_sleep(pair.b);
        ct_check(wake_settles(pair.b), "woken for ever by what was over");
    }
    ct_pair_down(&pair);
}

/* One thread, one interface: a message sent after arm makes the descriptor
 * readable. */
CASE(armed_then_sent, .caps = PSC_CAP_EVENT)
{
    ct_pair_t pair;
    ct_send_t send;

    ct_pair_up(&pair);
    for (uint64_t i = 0; i < 100; i++) {
        struct pollfd fd = {.fd = ct_ops->event_fd(pair.b->iface),
                            .events = POLLIN};

        while (ct_pair_progress(&pair) > 0)
            ;
        if (ct_ops->arm(pair.b->iface) != PSC_OK)
            continue;
        ct_check(ct_send_try(&pair.x, CT_BCOPY, 10, 1, &send) == PSC_OK,
                 "send");
        free(send.buffer);
        ct_check(poll(&fd, 1, CT_PATIENCE_S * 1000) == 1, "lost");
        ct_until(&pair, pair.y.received == pair.x.sent);
    }
    ct_check(pair.y.received > 0, "arm never let us sleep");
    ct_pair_down(&pair);
}
