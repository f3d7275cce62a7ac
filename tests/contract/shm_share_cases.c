/* Cases of shm alone: large gets, in which both sides copy. */
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm_cases.h"

#define LEN (4u << 20)
#define PAGES (LEN / SHM_COPY_PAGE)
#define GETS 11u /* more than there are slots */

/* x gets from y's region. */
typedef struct gets {
    ct_pair_t pair;
    remote_t remote;
    psc_rkey_t *rkey;
    char *region, *local;
    ct_send_t get;
} gets_t;

static char *map(size_t len)
{
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ct_check(at != MAP_FAILED, "mmap");
    return at;
}

static void gets_key(gets_t *g)
{
    ct_check(ct_ops->rkey_unpack(g->pair.x.ep, g->remote.packed, g->remote.len,
                                 &g->rkey) == PSC_OK,
             "rkey_unpack");
}

static void gets_up(gets_t *g)
{
    g->region = map(LEN);
    g->local = map(LEN);
    ct_pattern_fill(g->region, LEN, 5);
    ct_pair_up(&g->pair);
    remote_make(&g->pair.y, g->region, LEN, &g->remote);
    gets_key(g);
}

static void gets_down(gets_t *g)
{
    ct_ops->rkey_release(g->pair.x.ep, g->rkey);
    if (g->remote.mem)
        ct_ops->mem_deregister(g->pair.b->iface, g->remote.mem);
    ct_pair_down(&g->pair);
    munmap(g->region, LEN);
    munmap(g->local, LEN);
}

static void gets_begin_part(gets_t *g, size_t len)
{
    ct_send_make(&g->get);
    ct_check(ct_ops->get(g->pair.x.ep, g->local, len, NULL, g->rkey, 0,
                         &g->get.comp) == PSC_INPROGRESS,
             "get");
}

static void gets_begin(gets_t *g)
{
    gets_begin_part(g, LEN);
}

/* The cursor of the first get with which the owner was asked to help. */
static shm_cursor_t *cursor_of(const gets_t *g)
{
    const shm_ep_t *ep = (const shm_ep_t *)g->pair.x.ep;

    return &ep->tx.ring.control->gets[0].cursor;
}

static bool idle(ct_side_t *side)
{
    return side_iface(side)->n_copies == 0;
}

CASE(share_between_both, .caps = PSC_CAP_GET)
{
    static const size_t lens[] = {32u << 10, 50000, 64u << 10, LEN};
    gets_t g;

    gets_up(&g);
    for (unsigned round = 0; round < 20; round++) {
        size_t len = lens[round % 4];
        uint64_t helped = 0;

        memset(g.local, 0, LEN);
        gets_begin_part(&g, len);
        while (!g.get.done) {
            ct_pair_progress(&g.pair);
            helped = atomic_load(&cursor_of(&g)->copied[SHM_BACK]);
        }
        ct_check(g.get.status == PSC_OK, "%s", psc_status_string(g.get.status));
        ct_check(helped > 0 && helped < len, "%llu of %zu bytes by the owner",
                 (unsigned long long)helped, len);
        ct_check((atomic_load(&cursor_of(&g)->taken) >> 20 & 0xfffff) ==
                     (helped + SHM_COPY_PAGE - 1) / SHM_COPY_PAGE,
                 "the owner has not copied the last pages");
        ct_check(memcmp(g.local, g.region, len) == 0, "round %u", round);
        ct_until(&g.pair, idle(g.pair.a) && idle(g.pair.b));
    }
    gets_down(&g);
}

CASE(share_without_help, .caps = PSC_CAP_GET)
{
    gets_t g;

    gets_up(&g);
    gets_begin(&g);
    while (!g.get.done)
        ct_side_progress(g.pair.a);
    ct_check(g.get.status == PSC_OK && memcmp(g.local, g.region, LEN) == 0,
             "what came");
    memset(g.local, 0, LEN);
    /* the helper is late and must not write any more */
    ct_until(&g.pair, idle(g.pair.b));
    for (size_t i = 0; i < LEN; i++)
        ct_check(g.local[i] == 0, "byte %zu was written afterwards", i);
    gets_down(&g);
}

CASE(share_more_than_slots, .caps = PSC_CAP_GET)
{
    const size_t part = LEN / GETS;
    ct_send_t gets[GETS];
    gets_t g;

    gets_up(&g);
    for (unsigned i = 0; i < GETS; i++) {
        ct_send_make(&gets[i]);
        ct_check(ct_ops->get(g.pair.x.ep, g.local + i * part, part, NULL,
                             g.rkey, i * part, &gets[i].comp) == PSC_INPROGRESS,
                 "get %u", i);
    }
    for (unsigned i = 0; i < GETS; i++) {
        ct_exchange(&g.pair, &g.pair.y, &g.pair.x, CT_BCOPY, 5000, 1);
        ct_until(&g.pair, gets[i].done);
        ct_check(gets[i].status == PSC_OK, "get %u", i);
    }
    ct_check(memcmp(g.local, g.region, GETS * part) == 0, "what came");
    gets_down(&g);
}

/* The owner has taken all pieces: the getter sleeps, and the report that the
 * last one is copied wakes it. */
CASE(share_sleep, .caps = PSC_CAP_GET)
{
    struct pollfd fd = {.events = POLLIN};
    gets_t g;

    gets_up(&g);
    fd.fd = ct_ops->event_fd(g.pair.a->iface);
    ct_until(&g.pair, ct_ops->arm(g.pair.a->iface) == PSC_OK);
    gets_begin(&g);
    ct_check(ct_ops->arm(g.pair.a->iface) == PSC_ERR_NO_RESOURCE,
             "the getter sleeps beside bytes that it can copy");
    atomic_fetch_add(&cursor_of(&g)->taken, (uint64_t)PAGES << 20);
    ct_until(&g.pair, ct_ops->arm(g.pair.a->iface) == PSC_OK);
    ct_check(poll(&fd, 1, 0) == 0 && !g.get.done, "no nap");
    atomic_store(&cursor_of(&g)->copied[SHM_BACK], LEN);
    shm_ep_wake(end_ep(&g.pair.y));
    ct_check(poll(&fd, 1, CT_PATIENCE_S * 1000) == 1, "wake-up lost");
    ct_until(&g.pair, g.get.done);
    ct_check(g.get.status == PSC_OK, "%s", psc_status_string(g.get.status));
    gets_down(&g);
}

/* The ring is full when the get starts, so the owner cannot be asked. */
CASE(share_waits_for_room, .caps = PSC_CAP_GET)
{
    psc_status_t status;
    ct_send_t send;
    gets_t g;

    gets_up(&g);
    do {
        status = ct_send_try(&g.pair.x, CT_BCOPY, 100, 1, &send);
        if (status == PSC_ERR_NO_RESOURCE)
            free(send.buffer);
        else
            ct_send_finish(&g.pair, &send);
    } while (status != PSC_ERR_NO_RESOURCE);
    gets_begin(&g);
    ct_side_progress(g.pair.a);
    ct_until(&g.pair, g.get.done);
    ct_check(g.get.status == PSC_OK && memcmp(g.local, g.region, LEN) == 0,
             "what came");
    gets_down(&g);
}

/* The owner deregisters during the get. */
CASE(share_of_what_is_gone, .caps = PSC_CAP_GET)
{
    gets_t g;

    gets_up(&g);
    gets_begin(&g);
    ct_pair_progress(&g.pair);
    ct_ops->mem_deregister(g.pair.b->iface, g.remote.mem);
    g.remote.mem = NULL;
    ct_until(&g.pair, g.get.done);
    ct_check(g.get.status == PSC_ERR_INVALID, "%s",
             psc_status_string(g.get.status));
    ct_until(&g.pair, idle(g.pair.a) && idle(g.pair.b));
    gets_down(&g);
}

/* The second half of the getter's buffer is unmapped: the side that finds the
 * hole reports it, and neither side waits for ever. */
CASE(share_into_what_is_gone, .caps = PSC_CAP_GET)
{
    gets_t g;

    gets_up(&g);
    munmap(g.local + LEN / 2, LEN / 2);
    gets_begin(&g);
    for (int i = 0; i < 100; i++) /* the owner finds the hole */
        ct_side_progress(g.pair.b);
    ct_until(&g.pair, g.get.done);
    ct_check(g.get.status == PSC_ERR_TRANSPORT, "%s",
             psc_status_string(g.get.status));
    ct_exchange(&g.pair, &g.pair.x, &g.pair.y, CT_BCOPY, 10, 1);
    gets_down(&g);
}

CASE(share_ends_with_its_endpoint, .caps = PSC_CAP_GET)
{
    for (int by_owner = 0; by_owner < 2; by_owner++) {
        gets_t g;
        ct_end_t *closer;

        gets_up(&g);
        closer = by_owner ? &g.pair.y : &g.pair.x;
        gets_begin(&g);
        ct_pair_progress(&g.pair);
        ct_ops->rkey_release(g.pair.x.ep, g.rkey);
        ct_ops->ep_close(closer->ep);
        /* makes x poll its sockets in the next pass */
        side_iface(g.pair.a)->idle_polls = UINT32_MAX - 1;
        ct_until(&g.pair, g.get.done);
        ct_check(g.get.status < 0, "%s", psc_status_string(g.get.status));
        ct_until(&g.pair, ct_ops->ep_stop(closer->ep) == PSC_OK);
        ct_check(idle(g.pair.a) && idle(g.pair.b), "something goes on");
        gets_key(&g);
        gets_down(&g);
    }
}

static void helper_child(other_t *other)
{
    static ct_pair_t pair;
    char *region = map(LEN);
    remote_t remote;

    ct_pattern_fill(region, LEN, 5);
    other_connect(other, &pair);
    remote_make(&pair.x, region, LEN, &remote);
    ct_check(write(other->link, remote.packed, remote.len) > 0, "link");
    ct_until(&pair, !idle(pair.a));
    ct_check(write(other->link, "x", 1) == 1, "link");
    raise(SIGKILL);
}

/* The owner has taken a piece and dies before it has written the piece. */
CASE(share_outlives_its_helper, .caps = PSC_CAP_GET)
{
    static gets_t g;
    other_t other;
    shm_cursor_t *cursor;
    char byte;
    ssize_t n;

    if (other_fork(&other))
        helper_child(&other);
    g.local = map(LEN);
    other_connect(&other, &g.pair);
    n = read(other.link, g.remote.packed, sizeof(g.remote.packed));
    ct_check(n > 0, "link");
    g.remote.len = (size_t)n;
    gets_key(&g);
    gets_begin(&g);
    ct_check(read(other.link, &byte, 1) == 1, "link");
    cursor = &end_ep(&g.pair.x)->tx.ring.control->gets[0].cursor;
    atomic_fetch_add(&cursor->taken, 1u << 20); /* in the owner's name */
    ct_until(&g.pair, g.get.done);
    ct_check(g.get.status == PSC_ERR_PEER_LOST, "%s",
             psc_status_string(g.get.status));
    ct_until(&g.pair, g.pair.x.failed);
    other_wait(&other);
    ct_ops->rkey_release(g.pair.x.ep, g.rkey);
    ct_pair_down(&g.pair);
    munmap(g.local, LEN);
}

/* ---- lies ---- */

/* Copy of memory.c's shm_ask_t, for a peer that does not follow the protocol.
 */
typedef struct ask {
    uint32_t slot, turn;
    uint64_t from, to, len, seal, seal_address;
} ask_t;

static void ask_send(ct_end_t *end, const ask_t *ask, uint32_t len)
{
    shm_ep_t *ep = end_ep(end);

    ct_check(shm_am_reserve(ep, 2) == PSC_OK, "room");
    memcpy(shm_producer_begin(&ep->tx), ask, sizeof(*ask));
    shm_am_publish(ep, shm_word_pack(SHM_KIND_ASK, 0, 0, len), len);
}

static ask_t ask_make(const gets_t *g)
{
    const psc_mem_t *mem = g->remote.mem;

    return (ask_t){.turn = 1,
                   .from = mem->address,
                   .to = (uintptr_t)g->local,
                   .len = LEN,
                   .seal = atomic_load(&mem->seal),
                   .seal_address = (uintptr_t)&mem->seal};
}

static void ask_is_refused(void (*damage)(ask_t *ask), uint32_t len)
{
    gets_t g;
    ask_t ask;

    gets_up(&g);
    ask = ask_make(&g);
    damage(&ask);
    ask_send(&g.pair.x, &ask, len);
    ct_until(&g.pair, g.pair.y.failed);
    ct_check(g.pair.y.status == PSC_ERR_PROTOCOL, "%s", g.pair.y.reason);
    gets_down(&g);
}

static void damage_nothing(ask_t *ask)
{
    (void)ask;
}

static void damage_slot(ask_t *ask)
{
    ask->slot = SHM_HELPED_GETS;
}

static void damage_from(ask_t *ask)
{
    ask->from--;
}

static void damage_from_far(ask_t *ask)
{
    ask->from += LEN + 1;
}

static void damage_len(ask_t *ask)
{
    ask->len++;
}

static void damage_len_much(ask_t *ask)
{
    ask->len = UINT64_MAX;
}

/* Memory that is not registered under this seal is not copied. */
static void ask_for_nothing(void)
{
    gets_t g;
    ask_t ask;

    gets_up(&g);
    ask = ask_make(&g);
    ask.seal++;
    ask_send(&g.pair.x, &ask, sizeof(ask));
    ask.seal--;
    ask.seal_address += 8;
    ask_send(&g.pair.x, &ask, sizeof(ask));
    ask.seal_address -= 8;
    ask.turn = 2; /* the slot's cursor has turn 0, so it serves another get */
    ask_send(&g.pair.x, &ask, sizeof(ask));
    ct_exchange(&g.pair, &g.pair.x, &g.pair.y, CT_BCOPY, 10, 1);
    ct_until(&g.pair, idle(g.pair.b));
    for (size_t i = 0; i < LEN; i++)
        ct_check(g.local[i] == 0, "byte %zu was written", i);
    gets_down(&g);
}

CASE(share_forged_asks, .caps = PSC_CAP_GET)
{
    ask_is_refused(damage_nothing, sizeof(ask_t) - 1);
    ask_is_refused(damage_slot, sizeof(ask_t));
    ask_is_refused(damage_from, sizeof(ask_t));
    ask_is_refused(damage_from_far, sizeof(ask_t));
    ask_is_refused(damage_len, sizeof(ask_t));
    ask_is_refused(damage_len_much, sizeof(ask_t));
    ask_for_nothing();
}

/* The getter copies within its buffer, and the get completes, whatever the
 * owner writes into the cursor. */
CASE(share_lying_helper, .caps = PSC_CAP_GET)
{
    dice_t dice = {1};
    unsigned ended = 0;
    gets_t g;

    gets_up(&g);
    for (int round = 0; round < 200; round++) {
        shm_cursor_t *cursor;
        uint64_t turn;

        gets_begin(&g);
        cursor = &end_ep(&g.pair.y)->rx.ring.control->gets[0].cursor;
        turn = atomic_load(&cursor->taken) >> 40;
        for (int i = 0; i < 1000 && !g.get.done; i++) {
            uint64_t offset = dice_roll(&dice) % (2 * LEN);

            if (dice_roll(&dice) % 4 == 0)
                atomic_store(&cursor->taken,
                             turn << 40 | dice_roll(&dice) % (2 * PAGES) << 20 |
                                 dice_roll(&dice) % (2 * PAGES));
            if (dice_roll(&dice) % 4 == 0)
                atomic_store(&cursor->copied[SHM_BACK], offset);
            ct_side_progress(g.pair.a);
        }
        ended += g.get.done;
        atomic_store(&cursor->copied[SHM_BACK], UINT64_MAX);
        ct_until(&g.pair, g.get.done);
        ct_until(&g.pair, idle(g.pair.a) && idle(g.pair.b));
    }
    ct_check(ended > 100, "only %u gets ended under the lies", ended);
    gets_down(&g);
}
