/* What the software NI can do, and a TCP socket: `portals TEST CORE CORE SIZE
 * COUNT` runs two processes, pinned to these cores, and prints seconds.
 *
 *   sockets  COUNT messages of SIZE bytes there and back through a socket of
 *            the loopback that both sides poll
 *   latency  the same by puts of the NI
 *   stream   COUNT windows of WINDOW puts of SIZE bytes, all from the same
 *            memory to the same memory; an empty put ends each
 *
 * Built with the NI's own sources: see portals.py. */
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

#include "softni/pscompy_softni/api.h"

enum { WINDOW = 64 };

typedef struct {
    int first; /* this process sends first */
    int line;  /* socket for the exchange of addresses */
    int tcp;
    size_t size;
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

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pin(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
}

/* Not the one page of zeros that all memory is before it is written to. */
static char *touched(size_t size)
{
    char *bytes = malloc(size);

    if (!bytes)
        fail("malloc");
    return memset(bytes, 1, size);
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
    ptl_md_t md = {.options = PTL_MD_EVENT_SEND_DISABLE,
                   .ct_handle = PTL_CT_NONE};
    ptl_me_t me = {.length = s->size,
                   .ct_handle = PTL_CT_NONE,
                   .uid = PTL_UID_ANY,
                   .options = PTL_ME_OP_PUT | PTL_ME_EVENT_LINK_DISABLE,
                   .match_id = {.phys = {PTL_NID_ANY, PTL_PID_ANY}}};
    uint8_t cookie[SOFTNI_COOKIE_BYTES];
    ptl_handle_me_t entry;
    ptl_process_t id;

    must(PtlInit(), "PtlInit");
    must(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL,
                   PTL_PID_ANY, NULL, NULL, &s->ni),
         "PtlNIInit");
    must(PtlEQAlloc(s->ni, 1024, &s->eq), "PtlEQAlloc");
    must(PtlPTAlloc(s->ni, 0, s->eq, 0, &s->pt), "PtlPTAlloc");
    md.start = s->out;
    md.length = s->size;
    md.eq_handle = s->eq;
    must(PtlMDBind(s->ni, &md, &s->md), "PtlMDBind");
    me.start = s->in;
    must(PtlMEAppend(s->ni, s->pt, &me, PTL_PRIORITY_LIST, NULL, &entry),
         "PtlMEAppend");
    must(PtlGetPhysId(s->ni, &id), "PtlGetPhysId");
    exchange(s, &id, &s->peer, sizeof id);
    must(softni_cookie(s->ni, cookie), "softni_cookie");
    exchange(s, cookie, cookie, sizeof cookie);
    must(softni_admit(s->ni, s->peer, cookie), "softni_admit");
}

static void ni_put(side_t *s, size_t size)
{
    must(PtlPut(s->md, 0, size, PTL_NO_ACK_REQ, s->peer, s->pt, 0, 0, NULL, 0),
         "PtlPut");
}

static void ni_wait(side_t *s)
{
    ptl_event_t event;

    while (PtlEQGet(s->eq, &event) == PTL_EQ_EMPTY)
        continue;
    if (event.type != PTL_EVENT_PUT || event.ni_fail_type != PTL_NI_OK)
        must(PTL_FAIL, "event");
}

static void ni_trip(side_t *s)
{
    if (s->first)
        ni_put(s, s->size);
    ni_wait(s);
    if (!s->first)
        ni_put(s, s->size);
}

static void ni_window(side_t *s)
{
    for (int i = 0; i < WINDOW; i++) {
        if (s->first)
            ni_put(s, s->size);
        else
            ni_wait(s);
    }
    if (s->first)
        ni_wait(s);
    else
        ni_put(s, 0);
}

/* ---- tests ---- */

static const struct {
    const char *name;
    void (*open)(side_t *);
    void (*trip)(side_t *);
} tests[] = {
    {"sockets", tcp_connect, tcp_trip},
    {"latency", ni_open, ni_trip},
    {"stream", ni_open, ni_window},
};

static double measure(side_t *s, void (*trip)(side_t *), long count)
{
    double start;

    for (long i = 0; i < count / 10 + 1; i++)
        trip(s);
    start = now();
    for (long i = 0; i < count; i++)
        trip(s);
    return now() - start;
}

static void run(side_t *s, const char *test, long count)
{
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        double seconds;

        if (strcmp(tests[i].name, test))
            continue;
        tests[i].open(s);
        seconds = measure(s, tests[i].trip, count);
        if (s->first)
            printf("%.9f\n", seconds);
        return;
    }
    exit(2);
}

int main(int argc, char **argv)
{
    side_t s = {0};
    int lines[2], status = 0;
    char here = 0, there;
    pid_t child;

    if (argc != 6)
        return fprintf(stderr, "portals TEST CORE CORE SIZE COUNT\n"), 2;
    s.size = (size_t)atol(argv[4]);
    s.out = touched(s.size + 1);
    s.in = touched(s.size + 1);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines))
        fail("socketpair");
    child = fork();
    s.first = child != 0;
    s.line = lines[s.first];
    pin(atoi(argv[s.first ? 2 : 3]));
    run(&s, argv[1], atol(argv[5]));
    exchange(&s, &here, &there, 1); /* the last message has arrived */
    if (s.first)
        waitpid(child, &status, 0);
    return s.first && status != 0;
}
