/* Cases of shm alone: a peer that damages the shared memory. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "shm_cases.h"

/* ---- garbage in the rings ---- */

static unsigned long fuzz_messages;
static char fuzz_sink[1000];
static psc_iov_t fuzz_iov = {fuzz_sink, sizeof(fuzz_sink)};

/* Reads every byte of the message, so that AddressSanitizer checks it. */
static psc_status_t fuzz_am_recv(psc_ep_t *ep, const psc_am_t *am)
{
    const unsigned char *header = am->header, *payload = am->payload;
    unsigned sum = 0;

    (void)ep;
    for (size_t i = 0; i < am->header_len; i++)
        sum += header[i];
    for (size_t i = 0; i < am->len; i++)
        sum += payload[i];
    fuzz_messages += 1 + (sum == 1);
    return PSC_OK;
}

static void fuzz_am_begin(psc_ep_t *ep, uint8_t id, const void *header,
                          uint8_t header_len, uint64_t len, psc_dest_t *dest_p)
{
    (void)ep;
    (void)id;
    ct_check(len <= SHM_RING_MAX, "%llu bytes", (unsigned long long)len);
    memcpy(fuzz_sink, header, header_len);
    *dest_p = (psc_dest_t){&fuzz_iov, 1, NULL};
}

static void fuzz_am_end(psc_ep_t *ep, void *cookie)
{
    (void)ep;
    (void)cookie;
    fuzz_messages++;
}

/* A word whose fields are mostly valid. */
static uint64_t fuzz_word(dice_t *dice, const shm_ring_t *ring)
{
    uint64_t kind = dice_roll(dice) % (SHM_N_KINDS + 1);
    uint64_t header_len = dice_roll(dice) % (PSC_AM_HEADER_MAX + 2);
    uint64_t len = dice_roll(dice) % (shm_ring_room(ring) + 2);

    if (dice_roll(dice) % 8 == 0)
        return dice_roll(dice);
    return shm_word_pack((shm_kind_t)kind, (uint8_t)header_len, 0,
                         (uint32_t)len);
}

static void fuzz_scribble(dice_t *dice, const shm_ring_t *ring)
{
    uint32_t line = (uint32_t)(dice_roll(dice) % ring->n_lines);
    shm_control_t *control = ring->control;

    atomic_store(shm_ring_word(ring, line), fuzz_word(dice, ring));
    if (dice_roll(dice) % 64 == 0)
        atomic_store(&control->consumed, dice_roll(dice));
    if (dice_roll(dice) % 64 == 0)
        atomic_store(&control->sleeping, (uint32_t)dice_roll(dice));
    if (dice_roll(dice) % 64 == 0)
        atomic_store(&control->starving, (uint32_t)dice_roll(dice));
}

#define SCRIBBLES 50000

typedef struct scribbler {
    shm_ring_t there, back; /* y's two rings, as mapped by x */
    uint64_t seed;
    _Atomic bool stop, ended;
} scribbler_t;

static void *scribble(void *arg)
{
    scribbler_t *scribbler = arg;
    dice_t dice = {scribbler->seed};

    for (int i = 0; i < SCRIBBLES && !atomic_load(&scribbler->stop); i++) {
        fuzz_scribble(&dice, &scribbler->there);
        fuzz_scribble(&dice, &scribbler->back);
    }
    atomic_store(&scribbler->ended, true);
    return NULL;
}

/* A valid word, followed by the bytes that it needs. */
static uint64_t fuzz_right_word(dice_t *dice, shm_ep_t *ep)
{
    uint8_t header_len = (uint8_t)(dice_roll(dice) % PSC_AM_HEADER_MAX);
    uint32_t len = 1 + (uint32_t)(dice_roll(dice) % 1500);
    uint64_t total = len + 1 + dice_roll(dice) % 5000;

    if (ep->incoming.rest > 0)
        return shm_word_pack(
            SHM_KIND_NEXT, 0, 0,
            len < ep->incoming.rest ? len : (uint32_t)ep->incoming.rest);
    if (dice_roll(dice) % 2 == 0)
        return shm_word_pack(SHM_KIND_WHOLE, header_len, 0, header_len + len);
    memcpy((void *)(uintptr_t)shm_consumer_bytes(&ep->rx), &total,
           sizeof(total));
    return shm_word_pack(SHM_KIND_FIRST, header_len, 0, 8 + header_len + len);
}

/* Forges records exactly where y reads next. */
static void fuzz_aimed(ct_pair_t *pair, dice_t *dice)
{
    shm_ep_t *ep = end_ep(&pair->y);

    for (int i = 0; i < 100 && !pair->y.failed; i++) {
        uint64_t word = fuzz_right_word(dice, ep);

        if (dice_roll(dice) % 32 == 0)
            word = fuzz_word(dice, &ep->rx.ring) | 1;
        atomic_store(shm_ring_word(&ep->rx.ring, ep->rx.at), word);
        ct_side_progress(pair->b);
    }
}

/* One connection: another thread overwrites its shared memory while y works,
 * and y continues to read its rings afterwards, because the two threads may
 * never have run at the same time. */
static bool fuzz_round(ct_pair_t *pair, uint64_t seed)
{
    scribbler_t scribbler = {
        .there = end_ep(&pair->x)->tx.ring,
        .back = end_ep(&pair->x)->rx.ring,
        .seed = seed,
    };
    psc_iov_t iov = {fuzz_sink, sizeof(fuzz_sink)};
    pthread_t thread;

    ct_check(pthread_create(&thread, NULL, scribble, &scribbler) == 0,
             "thread");
    for (int i = 0; i < 3000 && !pair->y.failed;
         i += atomic_load(&scribbler.ended)) {
        ct_side_progress(pair->b);
        (void)ct_ops->am_bcopy(pair->y.ep, 1, fuzz_sink, 8, &iov, 1);
        (void)ct_ops->arm(pair->b->iface);
        side_iface(pair->b)->releasing = true;
        shm_release_step(side_iface(pair->b));
    }
    atomic_store(&scribbler.stop, true);
    pthread_join(thread, NULL);
    ct_check(!pair->y.failed || pair->y.status == PSC_ERR_PROTOCOL, "%s: %s",
             psc_status_string(pair->y.status), pair->y.reason);
    return pair->y.failed;
}

static psc_upcalls_t fuzz_upcalls(const psc_upcalls_t *plain)
{
    psc_upcalls_t up = *plain;

    up.am_recv = fuzz_am_recv;
    up.am_begin = fuzz_am_begin;
    up.am_end = fuzz_am_end;
    return up;
}

CASE(garbage_in_rings)
{
    ct_pair_t first, pair;
    psc_upcalls_t up;
    const psc_upcalls_t *plain;
    unsigned failed = 0;

    ct_pair_up(&first);
    plain = first.a->iface->up;
    up = fuzz_upcalls(plain);
    first.a->iface->up = first.b->iface->up = &up;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        pair.a = first.a;
        pair.b = first.b;
        ct_end_create(&pair.x, pair.a);
        ct_end_create(&pair.y, pair.b);
        ct_pair_connect(&pair);
        if (seed % 2 == 0)
            fuzz_aimed(&pair, &(dice_t){seed});
        failed += fuzz_round(&pair, seed);
        ct_end_destroy(&pair.y, pair.a);
        ct_end_destroy(&pair.x, pair.b);
    }
    printf("%u connections of 200 failed, %lu absurd messages came\n", failed,
           fuzz_messages);
    ct_check(failed > 100 && fuzz_messages > 100, "the fuzz is too weak");
    first.a->iface->up = first.b->iface->up = plain;
    ct_exchange(&first, &first.y, &first.x, CT_BCOPY, 100, 1);
    ct_pair_down(&first);
}

/* Words that no correct producer writes: the word, and the 8 bytes behind
 * it. */
typedef struct forgery {
    bool inside; /* 1000 bytes of a message of 2000 bytes have arrived */
    const char *what;
    int kind;
    uint8_t header_len;
    uint32_t len;
    uint64_t total;
} forgery_t;

static const forgery_t forgeries[] = {
    {false, "no kind", SHM_KIND_NONE, 0, 8, 0},
    {false, "an unknown kind", SHM_N_KINDS, 0, 8, 0},
    {false, "longer than a slot", SHM_KIND_WHOLE, 0, 32761, 0},
    {false, "much longer", SHM_KIND_WHOLE, 0, UINT32_MAX, 0},
    {false, "a long header", SHM_KIND_WHOLE, 65, 100, 0},
    {false, "header beyond the end", SHM_KIND_WHOLE, 9, 8, 0},
    {false, "NEXT of nothing", SHM_KIND_NEXT, 0, 8, 0},
    {false, "FIRST with a long header", SHM_KIND_FIRST, 200, 300, 999},
    {false, "FIRST beyond the end", SHM_KIND_FIRST, 1, 8, 999},
    {false, "FIRST with everything", SHM_KIND_FIRST, 0, 108, 100},
    {false, "FIRST of too much", SHM_KIND_FIRST, 0, 108, UINT64_MAX},
    {true, "FIRST inside", SHM_KIND_FIRST, 0, 108, 999},
    {true, "WHOLE inside", SHM_KIND_WHOLE, 0, 8, 0},
    {true, "NEXT of too much", SHM_KIND_NEXT, 0, 1001, 0},
    {true, "an empty NEXT", SHM_KIND_NEXT, 0, 0, 0},
};

static void forge(ct_pair_t *pair, uint64_t word, uint64_t total)
{
    shm_consumer_t *rx = &end_ep(&pair->y)->rx;

    memcpy((void *)(uintptr_t)shm_consumer_bytes(rx), &total, sizeof(total));
    atomic_store(shm_ring_word(&rx->ring, rx->at), word);
    ct_side_progress(pair->b);
}

CASE(forged_words_are_refused)
{
    for (size_t i = 0; i < sizeof(forgeries) / sizeof(forgeries[0]); i++) {
        const forgery_t *forgery = &forgeries[i];
        ct_pair_t pair;
        psc_upcalls_t up;

        ct_pair_up(&pair);
        up = fuzz_upcalls(pair.b->iface->up);
        pair.b->iface->up = &up;
        if (forgery->inside)
            forge(&pair, shm_word_pack(SHM_KIND_FIRST, 0, 0, 1008), 2000);
        ct_check(!pair.y.failed, "%s", pair.y.reason);
        forge(&pair,
              shm_word_pack((shm_kind_t)forgery->kind, forgery->header_len, 0,
                            forgery->len),
              forgery->total);
        ct_check(pair.y.failed && pair.y.status == PSC_ERR_PROTOCOL,
                 "%s was believed", forgery->what);
        ct_pair_down(&pair);
    }
}

/* The producer reads `consumed` of a consumer that frees lines it never had. */
CASE(consumer_lies)
{
    ct_pair_t pair;
    ct_send_t send;
    psc_status_t status;

    ct_pair_up(&pair);
    atomic_store(&end_ep(&pair.y)->rx.ring.control->consumed, 1ull << 40);
    do {
        status = ct_send_try(&pair.x, CT_BCOPY, 8000, 1, &send);
        free(send.buffer);
    } while (status == PSC_OK);
    ct_check(status == PSC_ERR_PROTOCOL, "%s", psc_status_string(status));
    ct_until(&pair, pair.x.failed && pair.y.failed);
    ct_check(pair.x.status == PSC_ERR_PROTOCOL, "%s", pair.x.reason);
    printf("here: %s\nthere: %s\n", pair.x.reason, pair.y.reason);
    ct_pair_down(&pair);
}

/* ---- rings that are none ---- */

static int plain_memfd(off_t size, unsigned seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ct_check(fd >= 0 && ftruncate(fd, size) == 0, "memfd");
    ct_check(fcntl(fd, F_ADD_SEALS, seals) == 0, "seals");
    return fd;
}

static void map_fails(int fd, const char *what)
{
    const shm_geometry_t geometry = {8192, 4};
    shm_ring_t ring = {0};

    ct_check(fd >= 0, "%s", what);
    ct_check(shm_ring_map(&ring, &geometry, fd) == PSC_ERR_PROTOCOL, "%s",
             what);
    ct_check(ring.control == NULL, "%s was mapped", what);
    close(fd);
}

CASE(only_sealed_rings_are_mapped)
{
    const unsigned all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const off_t right = 4 * 8192 + sysconf(_SC_PAGESIZE);

    map_fails(plain_memfd(right, F_SEAL_GROW | F_SEAL_SEAL), "may shrink");
    map_fails(plain_memfd(right, F_SEAL_SHRINK | F_SEAL_SEAL), "may grow");
    map_fails(plain_memfd(right, F_SEAL_SHRINK | F_SEAL_GROW), "unsealed");
    map_fails(plain_memfd(right - 1, all), "too short");
    map_fails(plain_memfd(right + 4096, all), "too long");
    map_fails(open("/dev/null", O_RDWR), "a device");
    map_fails(open("/proc/self/exe", O_RDONLY), "a file");
}

CASE(absurd_geometry)
{
    const shm_geometry_t absurd[] = {
        {0, 64},
        {8192, 0},
        {8192, 1},
        {8191, 64},
        {64, 64},
        {1u << 31, 1u << 31},
        {UINT32_MAX - 63, UINT32_MAX},
        {1u << 28, 2},
    };

    for (size_t i = 0; i < sizeof(absurd) / sizeof(absurd[0]); i++)
        ct_check(!shm_geometry_valid(&absurd[i]), "%u x %u",
                 absurd[i].slot_size, absurd[i].slots);
}

/* ---- the second mapping of the lines ---- */

/* Both sides of a ring of 64 lines, in one process. */
static void narrow_ring(shm_producer_t *tx, shm_consumer_t *rx)
{
    const shm_geometry_t geometry = {SHM_SLOT_MIN, 2};
    int fd;

    ct_check(shm_ring_create(&geometry, &fd) == PSC_OK, "ring");
    ct_check(shm_ring_map(&tx->ring, &geometry, fd) == PSC_OK, "map");
    ct_check(shm_ring_map(&rx->ring, &geometry, fd) == PSC_OK, "map");
    close(fd);
}

#define NARROW_RECORD (3 * SHM_LINE - SHM_WORD_SIZE)

static void narrow_send(shm_producer_t *tx, int byte)
{
    ct_check(shm_producer_reserve(tx, 3) == PSC_OK, "record %d", byte);
    memset(shm_producer_begin(tx), byte, NARROW_RECORD);
    shm_producer_publish(tx, shm_word_pack(SHM_KIND_WHOLE, 0, 0, NARROW_RECORD),
                         3);
}

static void narrow_receive(shm_consumer_t *rx, int byte)
{
    const uint8_t *bytes = shm_consumer_bytes(rx);

    ct_check(shm_consumer_peek(rx) != 0, "no record %d", byte);
    for (size_t i = 0; i < NARROW_RECORD; i++)
        ct_check(bytes[i] == byte, "record %d, byte %zu", byte, i);
    shm_consumer_advance(rx, 3);
}

CASE(lines_are_mapped_twice_before_a_record_wraps)
{
    shm_producer_t tx = {0};
    shm_consumer_t rx = {0};

    narrow_ring(&tx, &rx);
    for (int i = 0; i < 200; i++) {
        narrow_send(&tx, i);
        narrow_receive(&rx, i);
        ct_check(i > 3 || !(tx.ring.mirrored || rx.ring.mirrored),
                 "mapped twice after record %d", i);
    }
    ct_check(tx.ring.mirrored && rx.ring.mirrored, "not mapped twice");
    shm_ring_unmap(&tx.ring);
    shm_ring_unmap(&rx.ring);
}

CASE(lines_that_cannot_be_mapped_twice)
{
    struct rlimit limit;
    shm_producer_t tx = {0};
    shm_consumer_t rx = {0};
    psc_status_t status;

    narrow_ring(&tx, &rx);
    ct_check(getrlimit(RLIMIT_AS, &limit) == 0, "getrlimit");
    limit.rlim_cur = 0;
    ct_check(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
    for (int i = 0; i < 6; i++) {
        narrow_send(&tx, i);
        narrow_receive(&rx, i);
    }
    status = shm_producer_refresh(&tx);
    limit.rlim_cur = limit.rlim_max;
    ct_check(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
    ct_check(shm_ring_room(&rx.ring) == 0, "records are accepted");
    ct_check(status == PSC_ERR_NO_MEMORY, "status %d", (int)status);
}
