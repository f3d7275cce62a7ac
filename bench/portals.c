/* What the software NI can do, beside a TCP socket in the same run:
 * `portals CORE CORE SIZE COUNT` runs two processes, pinned to these cores,
 * and prints microseconds one way: of COUNT puts of SIZE bytes there and back,
 * of as many messages through a socket of the loopback that both sides poll,
 * and the former by the latter. Median of ROUNDS, which take turns.
 *
 * Built with the NI's own sources:
 *   cc -std=c11 -D_GNU_SOURCE -O3 -I. -pthread -o .venv/portals \
 *      bench/portals.c pscompy/plugins/portals/ni/[a-z]*.c */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pscompy/plugins/portals/ni/software.h"

enum { ROUNDS = 9 };

typedef struct {
    int first; /* it begins */
    int line;  /* to tell each other addresses */
    int tcp;
    size_t size;
    long count;
    char *out, *in;
    ptl_handle_ni_t ni;
    ptl_handle_eq_t eq;
    ptl_handle_md_t md;
    ptl_pt_index_t pt;
    ptl_process_t peer;
} side_t;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void must(int rc, const char *what)
{
    if (rc == PTL_OK)
        return;
    fprintf(stderr, "%s: %d\n", what, rc);
    exit(1);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void pin(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
}

static void exchange(side_t *s, const void *mine, void *theirs, size_t size)
{
    if (write(s->line, mine, size) != (ssize_t)size ||
        recv(s->line, theirs, size, MSG_WAITALL) != (ssize_t)size)
        fail("line");
}

/* ---- TCP ---- */

static void tcp_connect(side_t *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof a;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(listener, (void *)&a, size) || listen(listener, 1) ||
        getsockname(listener, (void *)&a, &size))
        fail("listen");
    exchange(s, &a, &a, sizeof a);
    if (s->first) {
        s->tcp = accept(listener, NULL, NULL);
    } else {
        s->tcp = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s->tcp, (void *)&a, sizeof a))
            fail("connect");
    }
    close(listener);
    if (setsockopt(s->tcp, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
        fail("TCP_NODELAY");
}

static void tcp_move(side_t *s, int sends)
{
    for (size_t done = 0; done < s->size;) {
        size_t left = s->size - done;
        ssize_t n = sends ? send(s->tcp, s->out + done, left, MSG_DONTWAIT)
                          : recv(s->tcp, s->in + done, left, MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno != EAGAIN))
            fail("socket");
        done += n > 0 ? (size_t)n : 0;
    }
}

static void tcp_trip(side_t *s)
{
    tcp_move(s, s->first);
    tcp_move(s, !s->first);
}

/* ---- Portals ---- */

static void ni_open(side_t *s)
{
    const psptl_provider_t *ptl = &psni_provider;
    ptl_md_t md = {.options = PTL_MD_EVENT_SEND_DISABLE,
                   .ct_handle = PTL_CT_NONE};
    ptl_me_t me = {.length = s->size,
                   .ct_handle = PTL_CT_NONE,
                   .uid = PTL_UID_ANY,
                   .options = PTL_ME_OP_PUT | PTL_ME_EVENT_LINK_DISABLE,
                   .match_id = {.phys = {PTL_NID_ANY, PTL_PID_ANY}}};
    uint8_t cookie[PSPTL_COOKIE_BYTES];
    ptl_handle_me_t entry;
    ptl_process_t id;

    must(ptl->PtlInit(), "PtlInit");
    must(ptl->PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL,
                        PTL_PID_ANY, NULL, NULL, &s->ni),
         "PtlNIInit");
    must(ptl->PtlEQAlloc(s->ni, 1024, &s->eq), "PtlEQAlloc");
    must(ptl->PtlPTAlloc(s->ni, 0, s->eq, 0, &s->pt), "PtlPTAlloc");
    md.start = s->out;
    md.length = s->size;
    md.eq_handle = s->eq;
    must(ptl->PtlMDBind(s->ni, &md, &s->md), "PtlMDBind");
    me.start = s->in;
    must(ptl->PtlMEAppend(s->ni, s->pt, &me, PTL_PRIORITY_LIST, NULL, &entry),
         "PtlMEAppend");
    must(ptl->PtlGetPhysId(s->ni, &id), "PtlGetPhysId");
    exchange(s, &id, &s->peer, sizeof id);
    must(ptl->ni_cookie(s->ni, cookie), "ni_cookie");
    exchange(s, cookie, cookie, sizeof cookie);
    must(ptl->ni_admit(s->ni, s->peer, cookie), "ni_admit");
}

static void ni_put(side_t *s)
{
    must(psni_provider.PtlPut(s->md, 0, s->size, PTL_NO_ACK_REQ, s->peer, s->pt,
                              0, 0, NULL, 0),
         "PtlPut");
}

static void ni_wait(side_t *s)
{
    ptl_event_t event;

    while (psni_provider.PtlEQGet(s->eq, &event) == PTL_EQ_EMPTY)
        continue;
    if (event.type != PTL_EVENT_PUT || event.ni_fail_type != PTL_NI_OK)
        must(PTL_FAIL, "event");
}

static void ni_trip(side_t *s)
{
    if (s->first)
        ni_put(s);
    ni_wait(s);
    if (!s->first)
        ni_put(s);
}

/* ---- rounds ---- */

static double measure(side_t *s, void (*trip)(side_t *))
{
    double start;

    for (long i = 0; i < s->count / 10 + 1; i++)
        trip(s);
    start = now_us();
    for (long i = 0; i < s->count; i++)
        trip(s);
    return (now_us() - start) / (double)s->count / 2;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void run(side_t *s)
{
    double puts[ROUNDS], sockets[ROUNDS];

    tcp_connect(s);
    ni_open(s);
    for (int i = 0; i < ROUNDS; i++) {
        puts[i] = measure(s, ni_trip);
        sockets[i] = measure(s, tcp_trip);
    }
    psni_provider.PtlNIFini(s->ni);
    qsort(puts, ROUNDS, sizeof puts[0], by_value);
    qsort(sockets, ROUNDS, sizeof sockets[0], by_value);
    if (s->first)
        printf("%.3f %.3f %.2f\n", puts[ROUNDS / 2], sockets[ROUNDS / 2],
               puts[ROUNDS / 2] / sockets[ROUNDS / 2]);
}

int main(int argc, char **argv)
{
    side_t s = {0};
    int lines[2];
    pid_t child;

    if (argc != 5) {
        fprintf(stderr, "portals CORE CORE SIZE COUNT\n");
        return 2;
    }
    s.size = (size_t)atol(argv[3]);
    s.count = atol(argv[4]);
    s.out = calloc(1, s.size + 1);
    s.in = calloc(1, s.size + 1);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines))
        fail("socketpair");
    child = fork();
    s.first = child != 0;
    s.line = lines[s.first];
    pin(atoi(argv[s.first ? 1 : 2]));
    run(&s);
    if (s.first)
        waitpid(child, NULL, 0);
    return 0;
}
