/* Cases of shm: pages of a ring that are given back when they are not used, and
 * used again. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "shm_cases.h"

#define LONG 20000
/* The page in use, and one of which the consumer has not freed all lines. */
#define KEPT_PAGES 2u

/* Pages of the ring's lines that are in memory. */
static size_t resident(const shm_ring_t *ring)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), found = 0;
    size_t n = (size_t)ring->n_lines * SHM_LINE / page;
    unsigned char *pages = calloc(n, 1);

    ct_check(mincore(ring->lines, n * page, pages) == 0, "mincore");
    for (size_t i = 0; i < n; i++)
        found += pages[i] & 1;
    free(pages);
    return found;
}

static size_t all_pages(const shm_ring_t *ring)
{
    return (size_t)ring->n_lines * SHM_LINE / (size_t)sysconf(_SC_PAGESIZE);
}

/* On a slow machine the timer releases pages meanwhile. */
static void use_whole_rings(ct_pair_t *pair)
{
    const shm_ring_t *ring = &end_ep(&pair->x)->tx.ring;

    do {
        for (uint32_t i = 0; i < ring->n_lines * SHM_LINE / LONG + 2; i++) {
            ct_exchange(pair, &pair->x, &pair->y, CT_BCOPY, LONG, 1);
            ct_exchange(pair, &pair->y, &pair->x, CT_BCOPY, LONG, 1);
        }
    } while (resident(ring) < all_pages(ring));
}

static bool released(const ct_pair_t *pair)
{
    return !side_iface(pair->a)->releasing && !side_iface(pair->b)->releasing;
}

CASE(unused_pages_are_released)
{
    ct_pair_t pair;
    const shm_ring_t *there, *back;

    ct_pair_up(&pair);
    there = &end_ep(&pair.x)->tx.ring;
    back = &end_ep(&pair.y)->tx.ring;
    for (int round = 0; round < 3; round++) {
        use_whole_rings(&pair);
        ct_until(&pair, released(&pair));
        ct_check(resident(there) <= KEPT_PAGES, "%zu", resident(there));
        ct_check(resident(back) <= KEPT_PAGES, "%zu", resident(back));
        for (int i = 0; i < 200; i++)
            ct_exchange(&pair, &pair.x, &pair.y, CT_SHORT, 8, 1);
    }
    ct_pair_down(&pair);
}

/* The ring that the peer reads only later keeps its messages. */
CASE(unread_pages_are_kept)
{
    ct_pair_t pair;
    ct_send_t send;
    const shm_ring_t *ring;
    uint64_t n = 0;

    ct_pair_up(&pair);
    ring = &end_ep(&pair.x)->tx.ring;
    while (ct_send_try(&pair.x, CT_BCOPY, LONG, 1, &send) == PSC_OK) {
        free(send.buffer);
        n++;
    }
    free(send.buffer);
    for (int i = 0; i < 5; i++) {
        shm_release_step(side_iface(pair.a));
        ct_check(side_iface(pair.a)->releasing, "the timer stops too early");
    }
    ct_check(resident(ring) >= n * LONG / (size_t)sysconf(_SC_PAGESIZE), "%zu",
             resident(ring));
    ct_until(&pair, pair.y.received == n);
    ct_until(&pair, released(&pair));
    ct_check(resident(ring) <= KEPT_PAGES, "%zu", resident(ring));
    ct_pair_down(&pair);
}

/* A process that only sleeps is woken to give pages back, and then no more. */
CASE(sleepers_release)
{
    ct_pair_t pair;
    struct itimerspec left;
    struct pollfd fd = {.events = POLLIN};
    const shm_iface_t *iface;

    ct_pair_up(&pair);
    iface = side_iface(pair.a);
    fd.fd = ct_ops->event_fd(pair.a->iface);
    use_whole_rings(&pair);
    while (iface->releasing)
        if (ct_side_progress(pair.a) == 0 &&
            ct_ops->arm(pair.a->iface) == PSC_OK)
            ct_check(poll(&fd, 1, CT_PATIENCE_S * 1000) == 1, "it sleeps on");
    ct_check(resident(&end_ep(&pair.x)->tx.ring) <= KEPT_PAGES, "%zu",
             resident(&end_ep(&pair.x)->tx.ring));
    ct_check(timerfd_gettime(iface->timer.fd, &left) == 0, "timer");
    ct_check(left.it_interval.tv_nsec == 0, "the timer ticks on");
    ct_pair_down(&pair);
}

/* The consumer frees lines before it has read them, or more than were written:
 * it loses its own messages, and the producer releases nothing else. */
CASE(releases_of_a_liar)
{
    ct_pair_t pair;
    shm_producer_t *tx;

    ct_pair_up(&pair);
    use_whole_rings(&pair);
    tx = &end_ep(&pair.x)->tx;
    atomic_store(&tx->ring.control->consumed, tx->produced + 1);
    tx->mark = tx->produced;
    ct_check(!shm_producer_release(tx), "a lie is believed");
    ct_check(resident(&tx->ring) == all_pages(&tx->ring), "it was released");
    atomic_store(&tx->ring.control->consumed, tx->produced);
    shm_producer_release(tx);
    ct_check(resident(&tx->ring) <= KEPT_PAGES, "%zu", resident(&tx->ring));
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, LONG, 1);
    ct_pair_down(&pair);
}

/* ---- both sides at work ---- */

#define RECORDS 5000u
#define LINES_MAX 40u

typedef struct both {
    shm_producer_t tx;
    shm_consumer_t rx;
    size_t released; /* calls after which pages were missing */
} both_t;

static void *produce(void *arg)
{
    both_t *both = arg;
    shm_producer_t *tx = &both->tx;
    dice_t dice = {1};

    for (uint32_t i = 0; i < RECORDS; i++) {
        uint32_t lines = 1 + (uint32_t)(dice_roll(&dice) % LINES_MAX);
        uint32_t len = lines * SHM_LINE - SHM_WORD_SIZE;

        while (shm_producer_reserve(tx, lines) != PSC_OK)
            sched_yield();
        memset(shm_producer_begin(tx), (int)(i % 251), len);
        shm_producer_publish(tx, shm_word_pack(SHM_KIND_WHOLE, 0, 0, len),
                             lines);
        if (dice_roll(&dice) % 8 != 0)
            continue;
        shm_producer_release(tx);
        both->released += resident(&tx->ring) < all_pages(&tx->ring);
    }
    return NULL;
}

static void consume(shm_consumer_t *rx)
{
    for (uint32_t i = 0; i < RECORDS; i++) {
        uint64_t word;
        const uint8_t *bytes = shm_consumer_bytes(rx);
        uint32_t len;

        while ((word = shm_consumer_peek(rx)) == 0)
            sched_yield();
        len = shm_word_unpack(word).len;
        for (uint32_t k = 0; k < len; k++)
            ct_check(bytes[k] == i % 251, "record %u, byte %u of %u", i, k,
                     len);
        shm_consumer_advance(rx, shm_ring_lines(len + SHM_WORD_SIZE));
    }
}

CASE(rings_between_threads)
{
    const shm_geometry_t geometry = {4096, 16};
    both_t both = {0};
    pthread_t thread;
    int fd;

    ct_check(shm_ring_create(&geometry, &fd) == PSC_OK, "ring");
    ct_check(shm_ring_map(&both.tx.ring, &geometry, fd) == PSC_OK, "map");
    ct_check(shm_ring_map(&both.rx.ring, &geometry, fd) == PSC_OK, "map");
    close(fd);
    ct_check(pthread_create(&thread, NULL, produce, &both) == 0, "thread");
    consume(&both.rx);
    pthread_join(thread, NULL);
    printf("pages were missing %zu times\n", both.released);
    ct_check(both.released > 0, "nothing was released");
    shm_ring_unmap(&both.tx.ring);
    shm_ring_unmap(&both.rx.ring);
}
