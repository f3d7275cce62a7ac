/* What the machine can do, without any library: `native TEST CORE CORE SIZE
 * COUNT` runs two processes, pinned to these cores, and prints a figure.
 *
 *   line   median ns that a cache line takes one way, and that of the slowest
 *          tenth: how near the cores are, and whether something disturbs them
 *   shm    seconds for COUNT messages there and back, each copied into shared
 *          memory and out of it; from 64 KiB on, it is there and copied once
 *   tcp    the same through a socket of the loopback that both sides poll
 *   unix, inet  seconds from a send to the return of a recv that slept: COUNT
 *          times the median
 *   copy   seconds for COUNT copies of SIZE bytes by one core */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, BATCHES = 200, TRIPS = 100, TWICE_MAX = 65535 };

typedef struct {
    int me;           /* 0 began it */
    int fd;           /* tcp: to the other side */
    size_t size;
    long count;
    char *memory;     /* shared: a line and a message for each direction */
    char *buf;
} side_t;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
}

static char *shared_memory(size_t size)
{
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    madvise(memory, size, MADV_HUGEPAGE);
    memset(memory, 0, size);
    return memory;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- the cache line --------------------------------------------------- */

static void bounce(_Atomic uint32_t *word, uint32_t first, int me, long trips)
{
    for (uint32_t i = first; i < first + 2 * trips; i += 2) {
        if (me == 0)
            atomic_store_explicit(word, i + 1, memory_order_release);
        uint32_t wanted = me == 0 ? i + 2 : i + 1;
        while (atomic_load_explicit(word, memory_order_acquire) != wanted)
            ;
        if (me == 1)
            atomic_store_explicit(word, i + 2, memory_order_release);
    }
}

static void run_line(side_t *s)
{
    static double ns[BATCHES];
    _Atomic uint32_t *word = (void *)s->memory;
    bounce(word, 0, s->me, TRIPS);
    for (uint32_t i = 0; i < BATCHES; i++) {
        double start = now_ns();
        bounce(word, (i + 1) * 2 * TRIPS, s->me, TRIPS);
        ns[i] = (now_ns() - start) / (2 * TRIPS);
    }
    qsort(ns, BATCHES, sizeof ns[0], by_value);
    if (s->me == 0)
        printf("%.1f %.1f\n", ns[BATCHES / 2], ns[BATCHES * 9 / 10]);
}

/* ---- messages --------------------------------------------------------- */

/* A direction's number, and the payload: in the same line where it fits. */
static size_t shm_room(size_t size)
{
    return (size + 2 * LINE) / LINE * LINE + 2 * LINE;
}

static char *shm_payload(char *place, size_t size)
{
    return place + (size <= LINE - 8 ? 8 : LINE);
}

static void shm_send(side_t *s, uint32_t number)
{
    char *place = s->memory + (size_t)s->me * shm_room(s->size);
    if (s->size <= TWICE_MAX)
        memcpy(shm_payload(place, s->size), s->buf, s->size);
    atomic_store_explicit((_Atomic uint32_t *)(void *)place, number,
                          memory_order_release);
}

static void shm_recv(side_t *s, uint32_t number)
{
    char *place = s->memory + (size_t)!s->me * shm_room(s->size);
    while (atomic_load_explicit((_Atomic uint32_t *)(void *)place,
                                memory_order_acquire) != number)
        ;
    memcpy(s->buf, shm_payload(place, s->size), s->size);
}

static void tcp_move(side_t *s, int sends)
{
    for (size_t done = 0; done < s->size;) {
        ssize_t n = sends ? send(s->fd, s->buf + done, s->size - done, 0)
                          : recv(s->fd, s->buf + done, s->size - done, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            fail("socket");
        done += n > 0 ? (size_t)n : 0;
    }
}

static void tcp_send(side_t *s, uint32_t number)
{
    (void)number;
    tcp_move(s, 1);
}

static void tcp_recv(side_t *s, uint32_t number)
{
    (void)number;
    tcp_move(s, 0);
}

static void ping_pong(side_t *s, void (*send_)(side_t *, uint32_t),
                      void (*recv_)(side_t *, uint32_t))
{
    double start = 0;
    for (long i = -s->count / 10 - 1; i < s->count; i++) {
        uint32_t number = (uint32_t)(i + s->count + 2);
        if (i == 0)
            start = now_ns();
        if (s->me == 0)
            send_(s, number);
        recv_(s, number);
        if (s->me == 1)
            send_(s, number);
    }
    if (s->me == 0)
        printf("%.9f\n", (now_ns() - start) / 1e9);
}

static void run_shm(side_t *s)
{
    ping_pong(s, shm_send, shm_recv);
}

static void run_tcp(side_t *s)
{
    fcntl(s->fd, F_SETFL, O_NONBLOCK);
    ping_pong(s, tcp_send, tcp_recv);
}

/* The other side sleeps in recv while this one sleeps 2 ms. */
static void run_wake(side_t *s)
{
    double *ns = calloc((size_t)s->count, sizeof *ns), sent;
    for (long i = 0; i < s->count; i++) {
        if (s->me == 0) {
            usleep(2000);
            sent = now_ns();
            if (send(s->fd, &sent, sizeof sent, 0) != sizeof sent)
                fail("send");
        } else {
            if (recv(s->fd, &sent, sizeof sent, MSG_WAITALL) != sizeof sent)
                fail("recv");
            ns[i] = now_ns() - sent;
        }
    }
    if (s->me == 1) {
        qsort(ns, (size_t)s->count, sizeof *ns, by_value);
        printf("%.9f\n", ns[s->count / 2] * (double)s->count / 1e9);
    }
    free(ns);
}

static void run_copy(side_t *s)
{
    if (s->me == 1)
        return;
    memcpy(s->memory, s->buf, s->size);
    double start = now_ns();
    for (long i = 0; i < s->count; i++) {
        memcpy(s->memory, s->buf, s->size);
        atomic_signal_fence(memory_order_seq_cst);
    }
    printf("%.9f\n", (now_ns() - start) / 1e9);
}

/* ---- the two processes ------------------------------------------------ */

static const struct {
    const char *name;
    void (*run)(side_t *);
} tests[] = {
    {"line", run_line}, {"shm", run_shm},   {"tcp", run_tcp},
    {"unix", run_wake}, {"inet", run_wake}, {"copy", run_copy},
};

static void inet_pair(int fds[2])
{
    struct sockaddr_in here = {.sin_family = AF_INET,
                               .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof here;
    int on = 1, door = socket(AF_INET, SOCK_STREAM, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(door, (void *)&here, len) || listen(door, 1) ||
        getsockname(door, (void *)&here, &len) ||
        connect(fds[0], (void *)&here, len))
        fail("loopback");
    fds[1] = accept(door, NULL, NULL);
    close(door);
    for (int i = 0; i < 2; i++)
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static char *message(size_t size)
{
    char *buf = aligned_alloc(2 << 20, (size | ((2 << 20) - 1)) + 1);
    if (!buf)
        fail("aligned_alloc");
    madvise(buf, size, MADV_HUGEPAGE);
    memset(buf, 1, size);
    return buf;
}

int main(int argc, char **argv)
{
    int fds[2], status = 0;
    size_t i = 0, n = sizeof tests / sizeof tests[0];
    while (argc == 6 && i < n && strcmp(tests[i].name, argv[1]))
        i++;
    if (argc != 6 || i == n) {
        fprintf(stderr, "usage: native TEST CORE CORE SIZE COUNT\n");
        return 2;
    }
    side_t s = {.size = strtoull(argv[4], NULL, 10), .count = atol(argv[5])};
    s.memory = shared_memory(2 * shm_room(s.size));
    if (strcmp(argv[1], "unix"))
        inet_pair(fds);
    else if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
        fail("socketpair");
    pid_t child = fork();
    if (child == 0) /* it must not spin on if this process is ended */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    s.me = child == 0;
    s.fd = fds[s.me];
    s.buf = message(s.size);
    pin(atoi(argv[2 + s.me]));
    tests[i].run(&s);
    if (child)
        waitpid(child, &status, 0);
    return status != 0;
}
