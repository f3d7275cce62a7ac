/* Cases of shm: endpoints that are idle, whose rings progress does not read,
 * and the bitmap by which their peers ask for it. */
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm_cases.h"

#define MANY 24
#define ACTIVE_MIN 8u /* endpoints that stay active without messages */

static ct_pair_t pairs[MANY];

static shm_ep_t *receiver(int i)
{
    return end_ep(&pairs[i].y);
}

static shm_iface_t *receiving(void)
{
    return side_iface(pairs[0].b);
}

/* Calls progress until all endpoints of the side are idle that may be. */
static void settle(ct_side_t *side)
{
    int64_t deadline = ct_deadline();

    while (side_iface(side)->n_active > ACTIVE_MIN) {
        ct_side_progress(side);
        ct_check(psc_clock_now() < deadline, "%u are active",
                 side_iface(side)->n_active);
    }
}

static void crowd_connect(void)
{
    for (int i = 1; i < MANY; i++) {
        pairs[i].a = pairs[0].a;
        pairs[i].b = pairs[0].b;
        ct_end_create(&pairs[i].x, pairs[i].a);
        ct_end_create(&pairs[i].y, pairs[i].b);
    }
    for (int i = 0; i < MANY; i++) {
        ct_pair_start(&pairs[i]);
        ct_pair_await(&pairs[i]);
    }
}

static void crowd_up(void)
{
    ct_pair_open(&pairs[0]);
    crowd_connect();
    settle(pairs[0].b);
}

/* Closes everything; the counters return to 0. */
static void crowd_down(void)
{
    shm_iface_t *iface = receiving();

    for (int i = MANY - 1; i > 0; i--) {
        ct_end_destroy(&pairs[i].x, pairs[i].b);
        ct_end_destroy(&pairs[i].y, pairs[i].a);
    }
    ct_check(iface->n_active + iface->n_idle == 1, "%u active, %u idle",
             iface->n_active, iface->n_idle);
    ct_check(iface->n_quiet <= iface->n_idle && iface->n_noted <= 1,
             "%u quiet, %u noted", iface->n_quiet, iface->n_noted);
    ct_pair_down(&pairs[0]);
}

/* The number of a pair whose y is idle. */
static int idle_one(void)
{
    int i = 0;

    while (i < MANY && receiver(i)->watch < SHM_WATCH_IDLE)
        i++;
    ct_check(i < MANY, "none is idle");
    return i;
}

/* x sends one message; y makes no progress. */
static void send_one(int i)
{
    ct_send_t send;

    ct_send(&pairs[i], &pairs[i].x, CT_SHORT, 8, 1, &send);
    ct_check(send.done, "not sent");
    free(send.buffer);
}

static bool arrived(int i)
{
    ct_check(!pairs[i].y.failed, "%s", pairs[i].y.reason);
    return pairs[i].y.received == pairs[i].x.sent;
}

/* One pass, which does not read the rings of idle endpoints by itself. */
static void pass(void)
{
    receiving()->idle_polls = 0;
    ct_side_progress(pairs[0].b);
}

CASE(idle_rings_are_read)
{
    unsigned n_idle = 0;

    crowd_up();
    for (int i = 0; i < MANY; i++) {
        n_idle += receiver(i)->watch >= SHM_WATCH_IDLE;
        for (int k = 0; k < 3; k++)
            send_one(i);
        pass();
        ct_check(arrived(i), "message %d", i);
    }
    ct_check(n_idle == MANY - ACTIVE_MIN, "%u", n_idle);
    settle(pairs[0].b);
    send_one(idle_one());
    crowd_down();
}

/* Each idle endpoint wakes the sleeper, also when it has slept before. */
CASE(idle_rings_wake)
{
    ct_side_t *side;

    crowd_up();
    side = pairs[0].b;
    for (int i = 0; i < MANY; i++) {
        struct pollfd fd = {ct_ops->event_fd(side->iface), POLLIN, 0};

        while (ct_side_progress(side) > 0 ||
               ct_ops->arm(side->iface) == PSC_ERR_NO_RESOURCE)
            continue;
        ct_check(receiving()->n_quiet == 0, "%u", receiving()->n_quiet);
        send_one(i);
        ct_check(poll(&fd, 1, CT_PATIENCE_S * 1000) == 1, "%d wakes nobody", i);
        ct_side_progress(side);
        ct_check(arrived(i), "message %d", i);
    }
    crowd_down();
}

/* Another peer clears the bitmap. The message is found nevertheless: by a later
 * pass, which reads a ring without its bit, and before the receiver sleeps. */
CASE(spoilt_bitmap)
{
    int i;

    crowd_up();
    i = idle_one();
    send_one(i);
    memset(receiving()->bitmap, 0, sizeof(shm_bitmap_t));
    pass();
    ct_check(!arrived(i), "the bitmap was not needed");
    ct_until(&pairs[i], arrived(i));
    settle(pairs[0].b);
    i = idle_one();
    send_one(i);
    memset(receiving()->bitmap, 0, sizeof(shm_bitmap_t));
    ct_check(ct_ops->arm(pairs[0].b->iface) == PSC_ERR_NO_RESOURCE, "sleeps");
    pass();
    ct_check(arrived(i), "message %d", i);
    crowd_down();
}

/* Another peer sets all bits all the time: no endpoint becomes active by it,
 * and messages arrive. */
CASE(bitmap_full_of_lies)
{
    crowd_up();
    for (int i = 0; i < 5000; i++) {
        memset(receiving()->bitmap, 0xff, sizeof(shm_bitmap_t));
        ct_side_progress(pairs[0].b);
        ct_check(receiving()->n_active <= ACTIVE_MIN, "%u",
                 receiving()->n_active);
    }
    for (int i = 0; i < MANY; i++) {
        send_one(i);
        memset(receiving()->bitmap, 0xff, sizeof(shm_bitmap_t));
        pass();
        ct_check(arrived(i), "message %d", i);
    }
    crowd_down();
}

/* A peer sets the bits of others instead of its own. */
CASE(bit_of_another)
{
    int i;

    crowd_up();
    i = idle_one();
    end_ep(&pairs[i].x)->peer_bit = (receiver(i)->bit + 1) % MANY;
    send_one(i);
    ct_until(&pairs[i], arrived(i));
    settle(pairs[0].b);
    end_ep(&pairs[i].x)->peer_bit = SHM_BITMAP_BITS - 1;
    send_one(i);
    ct_until(&pairs[i], arrived(i));
    crowd_down();
}

/* Leaves no bit of the side's bitmap free. */
static void take_all_bits(shm_iface_t *iface, shm_ep_t **bits)
{
    for (uint32_t i = 0; i < SHM_BITMAP_BITS; i++)
        bits[i] = end_ep(&pairs[0].y);
    iface->bits = bits;
    iface->n_bits = SHM_BITMAP_BITS;
}

/* Endpoints without a bit stay active. */
CASE(more_than_all_bits)
{
    static shm_ep_t *bits[SHM_BITMAP_BITS];

    ct_pair_open(&pairs[0]);
    take_all_bits(receiving(), bits);
    crowd_connect();
    for (int i = 0; i < 10000; i++)
        ct_side_progress(pairs[0].b);
    ct_check(receiving()->n_active == MANY, "%u", receiving()->n_active);
    for (int i = 0; i < MANY; i++)
        ct_exchange(&pairs[i], &pairs[i].x, &pairs[i].y, CT_BCOPY, 100, 1);
    receiving()->bits = NULL;
    receiving()->n_bits = 0;
    crowd_down();
}

/* The call names a bit that no bitmap has. */
CASE(absurd_bit_is_refused)
{
    static shm_ep_t *bits[SHM_BITMAP_BITS];
    ct_pair_t *pair = &pairs[0];

    ct_pair_open(pair);
    take_all_bits(receiving(), bits);
    end_ep(&pair->y)->bit = SHM_NO_BIT + 1;
    ct_pair_start(pair);
    ct_until(pair, pair->x.failed && pair->y.failed);
    ct_check(pair->x.status == PSC_ERR_PROTOCOL, "%s", pair->x.reason);
    end_ep(&pair->y)->bit = SHM_NO_BIT;
    receiving()->bits = NULL;
    receiving()->n_bits = 0;
    ct_pair_down(pair);
}

/* A message and the goodbye behind it, on an idle connection; and a goodbye
 * alone. */
CASE(idle_peer_closes)
{
    int i;

    crowd_up();
    i = idle_one();
    send_one(i);
    ct_ops->ep_close(pairs[i].x.ep);
    ct_until(&pairs[i], pairs[i].y.failed);
    ct_check(pairs[i].y.received == 1, "%s", pairs[i].y.reason);
    ct_check(pairs[i].y.status == PSC_ERR_CLOSED, "%s", pairs[i].y.reason);
    i = idle_one();
    ct_ops->ep_close(pairs[i].x.ep);
    ct_until(&pairs[i], pairs[i].y.failed);
    ct_check(pairs[i].y.status == PSC_ERR_CLOSED, "%s", pairs[i].y.reason);
    crowd_down();
}

/* The peer's process is killed after it has sent on an idle connection. */
CASE(idle_peer_is_killed)
{
    static ct_pair_t pair;
    other_t other;
    char go = 0;

    if (other_fork(&other)) {
        other_connect(&other, &pair);
        ct_check(read(other.link, &go, 1) == 1, "link");
        pairs[0] = pair;
        send_one(0);
        raise(SIGKILL);
    }
    other_connect(&other, &pair);
    ct_side_open(&pairs[0].side_a);
    pairs[0].a = &pairs[0].side_a;
    pairs[0].b = pair.a;
    ct_end_create(&pairs[0].x, pairs[0].a);
    ct_end_create(&pairs[0].y, pairs[0].b);
    crowd_connect();
    for (int i = 0; i < MANY; i++)
        ct_exchange(&pairs[i], &pairs[i].x, &pairs[i].y, CT_SHORT, 8, 1);
    settle(pair.a);
    ct_check(end_ep(&pair.x)->watch >= SHM_WATCH_IDLE, "it is active");
    ct_check(write(other.link, &go, 1) == 1, "link");
    other_wait(&other);
    ct_until(&pair, pair.x.failed);
    ct_check(pair.x.received == 1, "%s", pair.x.reason);
    for (int i = 0; i < MANY; i++) {
        ct_end_destroy(&pairs[i].x, pairs[i].b);
        ct_end_destroy(&pairs[i].y, pairs[i].a);
    }
    ct_side_close(&pairs[0].side_a);
    ct_pair_down(&pair);
}

/* ---- many connections between two processes ---- */

#define ROUNDS 3000u

static void between_connect(const other_t *other)
{
    psc_role_t role = other->pid == 0 ? PSC_ROLE_ACCEPTOR : PSC_ROLE_CONNECTOR;

    ct_side_open(&pairs[0].side_a);
    for (int i = 0; i < MANY; i++) {
        pairs[i].a = pairs[i].b = &pairs[0].side_a;
        ct_end_create(&pairs[i].x, pairs[i].a);
        ct_end_join_over(&pairs[i].x, other->link, role);
        ct_until(&pairs[i], pairs[i].x.up);
    }
}

static void sleep_or_poll(bool sleeps)
{
    ct_side_t *side = pairs[0].a;
    struct pollfd fd = {ct_ops->event_fd(side->iface), POLLIN, 0};

    if (ct_side_progress(side) == 0 && sleeps &&
        ct_ops->arm(side->iface) == PSC_OK)
        ct_check(poll(&fd, 1, CT_PATIENCE_S * 1000) == 1, "a message was lost");
}

/* Both processes draw the same connections. The one that waits sleeps in some
 * rounds and polls in the others. */
static void between_exchange(bool first)
{
    dice_t common = {1}, own = {first};
    uint64_t expected[MANY] = {0};

    for (unsigned k = 0; k < ROUNDS; k++) {
        uint64_t i = dice_roll(&common) % MANY;
        bool sends = dice_roll(&common) % 2 == (uint64_t)first;
        bool sleeps = dice_roll(&own) % 4 != 0;
        int64_t deadline = ct_deadline();

        for (uint64_t n = dice_roll(&own) % 200; n > 0; n--)
            ct_side_progress(pairs[0].a);
        expected[i] += !sends;
        if (sends)
            send_one((int)i);
        while (pairs[i].x.received < expected[i]) {
            sleep_or_poll(sleeps);
            ct_check(psc_clock_now() < deadline, "round %u", k);
        }
    }
}

CASE(idle_rings_between_processes)
{
    other_t other;

    if (other_fork(&other)) {
        between_connect(&other);
        between_exchange(false);
        ct_until(&pairs[0], pairs[0].x.failed);
        _exit(0);
    }
    between_connect(&other);
    between_exchange(true);
    for (int i = 0; i < MANY; i++)
        ct_end_destroy(&pairs[i].x, NULL);
    ct_side_close(&pairs[0].side_a);
    other_check(&other);
}
