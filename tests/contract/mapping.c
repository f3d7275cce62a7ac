/* Cases: a segment of one side mapped by the other, and keys and files that are
 * invalid. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define PAGE 4096u
#define LEN (80u * PAGE) /* the last page holds the identity */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

typedef struct segment {
    int fd;
    unsigned char *base;
    psc_mem_t *mem;
    uint8_t packed[PSC_RKEY_MAX];
    size_t packed_len;
} segment_t;

static void identify(segment_t *segment, unsigned id)
{
    psc_segment_identity_t *identity = (void *)(segment->base + LEN - PAGE);

    memset(identity->id, (int)id, sizeof identity->id);
}

static void segment_seal(segment_t *segment, int seals)
{
    ct_check(fcntl(segment->fd, F_ADD_SEALS, seals) == 0, "seals");
}

static void segment_make(segment_t *segment, unsigned id)
{
    segment->fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ct_check(segment->fd >= 0 && ftruncate(segment->fd, LEN) == 0, "memfd");
    segment->base =
        mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    ct_check(segment->base != MAP_FAILED, "mmap");
    identify(segment, id);
}

static void segment_share(segment_t *segment, ct_side_t *side, int fd)
{
    ct_check(ct_ops->mem_share(side->iface, segment->base, LEN, fd,
                               &segment->mem) == PSC_OK,
             "mem_share");
    segment->packed_len = sizeof segment->packed;
    ct_check(ct_ops->rkey_pack(side->iface, segment->mem, segment->packed,
                               &segment->packed_len) == PSC_OK,
             "rkey_pack");
}

static void segment_free(segment_t *segment, ct_side_t *side)
{
    if (side)
        ct_ops->mem_deregister(side->iface, segment->mem);
    munmap(segment->base, LEN);
    close(segment->fd);
}

static psc_status_t map(ct_end_t *end, const segment_t *segment,
                        psc_map_t **map_p)
{
    return ct_ops->rkey_map(end->ep, segment->packed, segment->packed_len,
                            map_p);
}

/* A connected pair: y has shared a segment, x has mapped it. */
typedef struct shared {
    ct_pair_t pair;
    segment_t segment;
    psc_map_t *map;
} shared_t;

static void shared_up(shared_t *shared)
{
    ct_pair_up(&shared->pair);
    segment_make(&shared->segment, 7);
    segment_seal(&shared->segment, SEALS);
    segment_share(&shared->segment, shared->pair.b, shared->segment.fd);
    ct_check(map(&shared->pair.x, &shared->segment, &shared->map) == PSC_OK,
             "rkey_map");
    ct_check(shared->map->len == LEN, "%zu bytes", shared->map->len);
}

static void shared_down(shared_t *shared)
{
    psc_map_drop(shared->map);
    segment_free(&shared->segment, shared->pair.b);
    ct_pair_down(&shared->pair);
}

/* ---- what is mapped ---- */

CASE(map_shows_the_segment, .caps = PSC_CAP_MAP)
{
    shared_t shared;

    shared_up(&shared);
    for (unsigned seed = 1; seed <= 3; seed++) {
        ct_pattern_fill(shared.segment.base, LEN - PAGE, seed);
        ct_check(ct_pattern_check(shared.map->base, LEN - PAGE, seed),
                 "what it shows");
    }
    shared_down(&shared);
}

CASE(map_is_for_reading, .caps = PSC_CAP_MAP)
{
    shared_t shared;

    shared_up(&shared);
    ct_check(mprotect((void *)(uintptr_t)shared.map->base, PAGE,
                      PROT_READ | PROT_WRITE) != 0,
             "a mapping that can be made writable");
    shared_down(&shared);
}

CASE(map_outlives_the_endpoint, .caps = PSC_CAP_MAP)
{
    shared_t shared;

    shared_up(&shared);
    ct_pattern_fill(shared.segment.base, LEN - PAGE, 5);
    segment_free(&shared.segment, shared.pair.b);
    ct_pair_down(&shared.pair);
    ct_check(ct_pattern_check(shared.map->base, LEN - PAGE, 5), "contents");
    ct_check(shared.map->keep(shared.map, PAGE, 100) == PSC_OK, "keep");
    ct_check(ct_pattern_check(shared.map->base, LEN - PAGE, 5), "kept");
    psc_map_drop(shared.map);
}

CASE(map_is_counted, .caps = PSC_CAP_MAP)
{
    shared_t shared;

    shared_up(&shared);
    psc_map_hold(shared.map);
    psc_map_drop(shared.map);
    shared.segment.base[0] = 77;
    ct_check(shared.map->base[0] == 77, "gone with the first of two");
    shared_down(&shared);
}

/* ---- what is kept ---- */

CASE(keep_ends_the_sharing_of_these_bytes, .caps = PSC_CAP_MAP)
{
    static const struct {
        uint64_t offset;
        size_t len;
    } spans[] = {{0, 1},
                 {3 * PAGE + 5, 2 * PAGE},
                 {3 * PAGE, PAGE}, /* again, with more pages */
                 {8 * PAGE, 0},
                 {LEN - 2 * PAGE, PAGE}};
    shared_t shared;

    shared_up(&shared);
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        uint64_t at = spans[i].offset;

        memset(shared.segment.base, 10 + (int)i, LEN - PAGE);
        unsigned char before = shared.map->base[at];
        ct_check(shared.map->keep(shared.map, at, spans[i].len) == PSC_OK,
                 "keep %zu", i);
        memset(shared.segment.base, 100 + (int)i, LEN - PAGE);
        for (size_t n = 0; n < spans[i].len; n++)
            ct_check(shared.map->base[at + n] == before, "span %zu byte %zu", i,
                     n);
        ct_check(shared.map->base[20 * PAGE] == 100 + i, "the rest is shared");
    }
    shared_down(&shared);
}

/* ---- what is refused ---- */

static void refuse(ct_pair_t *pair, const segment_t *segment, const char *what)
{
    psc_map_t *mapped;
    psc_status_t status = map(&pair->x, segment, &mapped);

    ct_check(status == PSC_ERR_UNSUPPORTED || status == PSC_ERR_PROTOCOL,
             "%s: %s", what, psc_status_string(status));
}

CASE(unsealed_is_refused, .caps = PSC_CAP_MAP)
{
    static const int seals[] = {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE,
                                F_SEAL_SEAL};
    ct_pair_t pair;
    segment_t segment;

    ct_pair_up(&pair);
    for (size_t i = 0; i < sizeof seals / sizeof *seals; i++) {
        segment_make(&segment, 7);
        segment_seal(&segment, SEALS & ~F_SEAL_SEAL & ~seals[i]);
        if (seals[i] != F_SEAL_SEAL)
            segment_seal(&segment, F_SEAL_SEAL);
        segment_share(&segment, pair.b, segment.fd);
        refuse(&pair, &segment, "one seal is missing");
        segment_free(&segment, pair.b);
    }
    ct_pair_down(&pair);
}

/* The descriptor number denotes another segment by now. */
CASE(another_segment_is_refused, .caps = PSC_CAP_MAP)
{
    ct_pair_t pair;
    segment_t segment, other;

    ct_pair_up(&pair);
    segment_make(&segment, 7);
    segment_seal(&segment, SEALS);
    segment_make(&other, 8);
    segment_seal(&other, SEALS);
    segment_share(&segment, pair.b, other.fd);
    refuse(&pair, &segment, "another id");
    segment_free(&segment, pair.b);
    segment_free(&other, NULL);
    ct_pair_down(&pair);
}

static int short_file(void)
{
    int fd = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ct_check(ftruncate(fd, PAGE) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0,
             "a short file");
    return fd;
}

CASE(other_files_are_refused, .caps = PSC_CAP_MAP)
{
    int ends[2] = {-1, -1}, closed = dup(0);
    ct_pair_t pair;
    segment_t segment;

    ct_pair_up(&pair);
    segment_make(&segment, 7);
    segment_seal(&segment, SEALS);
    ct_check(pipe(ends) == 0, "pipe");
    close(closed);
    const int fds[] = {short_file(),
                       open("/dev/zero", O_RDWR),
                       ends[0],
                       closed,
                       open("/proc/self/exe", O_RDONLY),
                       open("/tmp", O_RDONLY),
                       1 << 20,
                       INT32_MAX};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        segment_share(&segment, pair.b, fds[i]);
        refuse(&pair, &segment, "what is no segment");
        ct_ops->mem_deregister(pair.b->iface, segment.mem);
        if (i != 3)
            close(fds[i]);
    }
    close(ends[1]);
    segment_free(&segment, NULL);
    ct_pair_down(&pair);
}

/* A damaged key is refused, unless the damage is in bytes that are not used. */
CASE(damaged_map_key_is_refused, .caps = PSC_CAP_MAP)
{
    shared_t shared;
    segment_t damaged;
    psc_map_t *mapped;
    unsigned refused = 0;

    shared_up(&shared);
    shared.segment.base[0] = 99;
    for (size_t cut = 0; cut < shared.segment.packed_len; cut++) {
        damaged = shared.segment;
        damaged.packed_len = cut;
        refuse(&shared.pair, &damaged, "a key that was cut");
    }
    for (size_t bit = 0; bit < 8 * shared.segment.packed_len; bit++) {
        damaged = shared.segment;
        damaged.packed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (map(&shared.pair.x, &damaged, &mapped) != PSC_OK) {
            refused++;
            continue;
        }
        ct_check(mapped->len == LEN && mapped->base[0] == 99, "bit %zu", bit);
        psc_map_drop(mapped);
    }
    printf("%u of %zu damaged keys were refused\n", refused,
           8 * shared.segment.packed_len);
    ct_check(refused > 8 * PSC_SEGMENT_ID_SIZE, "an id that does not matter");
    shared_down(&shared);
}

/* A key of a region without a descriptor cannot be mapped. */
CASE(key_of_plain_memory_is_refused, .caps = PSC_CAP_MAP | PSC_CAP_PUT)
{
    static unsigned char region[PAGE];
    ct_pair_t pair;
    segment_t plain = {.packed_len = PSC_RKEY_MAX};

    ct_pair_up(&pair);
    ct_check(ct_ops->mem_register(pair.b->iface, NULL, region, PAGE,
                                  &plain.mem) == PSC_OK,
             "mem_register");
    ct_ops->rkey_pack(pair.b->iface, plain.mem, plain.packed,
                      &plain.packed_len);
    refuse(&pair, &plain, "a key of plain memory");
    ct_ops->mem_deregister(pair.b->iface, plain.mem);
    ct_pair_down(&pair);
}
