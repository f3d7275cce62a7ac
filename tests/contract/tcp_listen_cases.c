/* Cases of tcp: callers of the listener, and acceptors that answer a call. */
#include <errno.h>
#include <sys/resource.h>

#include "tcp_cases.h"

#define PLACES 16 /* where the process may have that many descriptors: */
#define FEW_DESCRIPTORS 127

static unsigned roll(unsigned *dice)
{
    return (*dice = *dice * 1103515245 + 12345) >> 8;
}

/* Connects x with y, which listens at the last of these ports. If the time
 * limit is short, a slow machine may have to dial again. */
static void connect_in_the_end(ct_pair_t *pair, const uint16_t *ports,
                               unsigned n)
{
    tcp_target_t target;

    for (int attempt = 0; attempt < 50; attempt++) {
        tcp_target_of(&pair->y, &target);
        target.len = tcp_address_with(target.id, ports, n, target.address);
        tcp_await_call(&pair->y, &pair->x);
        ct_end_connect(&pair->x, PSC_ROLE_CONNECTOR, ct_token, target.address,
                       target.len);
        ct_until(pair, (pair->x.up && pair->y.up) || pair->x.failed);
        if (!pair->x.failed)
            return;
        printf("%s\n", pair->x.reason);
        ct_end_destroy(&pair->x, pair->b);
        ct_end_destroy(&pair->y, pair->a);
        ct_end_create(&pair->x, pair->a);
        ct_end_create(&pair->y, pair->b);
    }
    ct_check(pair->x.up, "it never comes up");
}

/* ---- strangers ---- */

static void stranger(uint16_t port, unsigned *dice)
{
    uint8_t bytes[200];
    size_t len = roll(dice) % sizeof(bytes);
    int fd = tcp_dial(port);

    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)roll(dice);
    if (roll(dice) % 3 == 0) /* a valid hello that names no endpoint */
        tcp_wire_store64(bytes, TCP_HELLO_MAGIC);
    if (len > 0)
        tcp_put(fd, bytes, len);
    close(fd);
}

CASE(strangers_do_no_harm)
{
    ct_pair_t pair;
    tcp_target_t target;
    unsigned dice = 5;
    size_t descriptors;

    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    descriptors = tcp_count_descriptors();
    for (int i = 0; i < 300; i++) {
        stranger(target.port, &dice);
        ct_pair_progress(&pair);
    }
    ct_until(&pair, tcp_count_descriptors() == descriptors);
    ct_check(!pair.y.failed, "%s", pair.y.reason);
    ct_pair_connect(&pair);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    stranger(target.port, &dice);
    ct_exchange(&pair, &pair.y, &pair.x, CT_BCOPY, 100, 1);
    ct_pair_down(&pair);
}

/* More silent callers than there are places, and one legitimate caller. */
CASE(silent_callers_are_dropped)
{
    ct_pair_t pair;
    tcp_target_t target;
    int silent[40];

    tcp_set("ACCEPT_TIMEOUT", CT_SECOND / 10, "0.1");
    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    for (int i = 0; i < 40; i++) {
        silent[i] = tcp_dial(target.port);
        if (i % 2)
            tcp_put(silent[i], "PSCP", 4);
    }
    connect_in_the_end(&pair, &target.port, 1);
    for (int i = 0; i < 40; i++) {
        char byte;

        ct_check(!tcp_take(pair.b, silent[i], &byte, 1), "an answer");
        close(silent[i]);
    }
    ct_pair_down(&pair);
}

/* Like ct_pair_open, with this limit of descriptors. */
static void open_within(ct_pair_t *pair, rlim_t descriptors)
{
    struct rlimit limit, tight;

    getrlimit(RLIMIT_NOFILE, &limit);
    tight = (struct rlimit){descriptors, limit.rlim_max};
    ct_check(setrlimit(RLIMIT_NOFILE, &tight) == 0, "setrlimit");
    ct_pair_open(pair);
    ct_check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

/* With few descriptors there are few places; all are occupied, and a legitimate
 * caller is accepted nevertheless. */
CASE(callers_are_limited)
{
    ct_pair_t pair;
    tcp_target_t target;
    size_t before;
    int silent[60];

    open_within(&pair, FEW_DESCRIPTORS);
    tcp_target_of(&pair.y, &target);
    for (int i = 0; i < 60; i++)
        silent[i] = tcp_dial(target.port);
    before = tcp_count_descriptors();
    ct_until(&pair, tcp_count_descriptors() - before >= PLACES);
    tcp_progress_ms(pair.b, 50);
    ct_check(tcp_count_descriptors() - before == PLACES,
             "%zu callers were let in", tcp_count_descriptors() - before);
    ct_pair_connect(&pair);
    for (int i = 0; i < 60; i++)
        close(silent[i]);
    ct_pair_down(&pair);
}

/* A source that calls endlessly displaces its own callers. */
CASE(crowded_source_makes_room)
{
    ct_pair_t pair;
    tcp_target_t target;
    int lonely, silent[60];
    uint8_t byte;

    open_within(&pair, FEW_DESCRIPTORS);
    tcp_target_of(&pair.y, &target);
    lonely = tcp_dial_from("127.0.0.2", target.port);
    for (int i = 0; i < 60; i++) {
        silent[i] = tcp_dial(target.port);
        tcp_progress_ms(pair.b, 1);
    }
    ct_check(!tcp_take(pair.b, silent[0], &byte, 1), "an answer");
    ct_check(recv(lonely, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN,
             "the oldest went, whose source has one place only");
    close(lonely);
    for (int i = 0; i < 60; i++)
        close(silent[i]);
    ct_pair_down(&pair);
}

/* ---- callers that name an endpoint ---- */

static int call(const tcp_target_t *target)
{
    uint8_t hello[TCP_HELLO_SIZE] = {0};
    int fd = tcp_dial(target->port);

    tcp_wire_store64(hello, TCP_HELLO_MAGIC);
    tcp_wire_store64(hello + 8, target->id);
    tcp_put(fd, hello, sizeof(hello));
    return fd;
}

CASE(wrong_proof_is_refused)
{
    ct_pair_t pair;
    tcp_target_t target;
    uint8_t challenge[TCP_CHALLENGE_SIZE];
    int fd;

    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    ct_end_connect(&pair.y, PSC_ROLE_ACCEPTOR, ct_token, target.address,
                   target.len);
    fd = call(&target);
    ct_check(tcp_take(pair.b, fd, challenge, sizeof(challenge)), "hung up");
    /* the acceptor's own proof sent back */
    tcp_put(fd, challenge + 8 + PSC_PROOF_NONCE_SIZE, PSC_PROOF_SIZE);
    ct_until(&pair, pair.y.failed);
    ct_check(!pair.y.up && pair.y.status == PSC_ERR_CONNECT, "%s",
             pair.y.reason);
    ct_check(strstr(pair.y.reason, "token"), "%s", pair.y.reason);
    close(fd);
    ct_pair_down(&pair);
}

static void expect_hang_up(ct_pair_t *pair, int fd)
{
    uint8_t byte;

    ct_check(!tcp_take(pair->b, fd, &byte, 1), "an answer");
    close(fd);
}

/* An endpoint that has a caller closes further calls and stays usable. */
CASE(second_call_is_refused)
{
    ct_pair_t pair;
    tcp_target_t target;
    uint8_t challenge[TCP_CHALLENGE_SIZE];
    int fd;

    ct_pair_up(&pair);
    tcp_target_of(&pair.y, &target);
    expect_hang_up(&pair, call(&target));
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    ct_pair_down(&pair);

    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    ct_end_connect(&pair.y, PSC_ROLE_ACCEPTOR, ct_token, target.address,
                   target.len);
    fd = call(&target); /* this caller proves nothing yet */
    ct_check(tcp_take(pair.b, fd, challenge, sizeof(challenge)), "hung up");
    expect_hang_up(&pair, call(&target));
    ct_check(!pair.y.failed, "%s", pair.y.reason);
    close(fd);
    ct_until(&pair, pair.y.failed);
    ct_pair_down(&pair);
}

/* Eight wrong bytes are enough; the listener does not wait for more. */
CASE(wrong_protocol_is_noticed)
{
    ct_pair_t pair;
    tcp_target_t target;
    int fd;

    tcp_set("ACCEPT_TIMEOUT", INT64_MAX, "inf");
    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    fd = tcp_dial(target.port);
    tcp_put(fd, "GET / HT", 8);
    expect_hang_up(&pair, fd);
    ct_pair_down(&pair);
}

/* The rail lo has ::1 too, where there is IPv6, but not 127.0.0.2. */
CASE(a_rail_is_called_at_its_own_addresses)
{
    ct_pair_t pair;
    tcp_target_t target;
    uint8_t challenge[TCP_CHALLENGE_SIZE];
    int fd;

    tcp_set("RAILS", 0, "lo");
    tcp_set("ACCEPT_TIMEOUT", INT64_MAX, "inf");
    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    fd = tcp_dial_at("127.0.0.2", target.port);
    if (fd >= 0)
        expect_hang_up(&pair, fd);
    ct_end_connect(&pair.y, PSC_ROLE_ACCEPTOR, ct_token, target.address,
                   target.len);
    fd = call(&target);
    ct_check(tcp_take(pair.b, fd, challenge, sizeof(challenge)), "hung up");
    close(fd);
    ct_pair_down(&pair);
}

/* ---- acceptors that are not what they say ---- */

/* Accepts x's call at a port of the test, and reads the hello. */
static int answer_call(ct_pair_t *pair, int listener, uint8_t *hello)
{
    int64_t deadline = ct_deadline();
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) < 0) {
        ct_side_progress(pair->a);
        ct_check(psc_clock_now() < deadline, "nobody calls");
    }
    ct_check(tcp_take(pair->a, fd, hello, TCP_HELLO_SIZE), "hung up");
    return fd;
}

static int tcp_listen_nonblocking(uint16_t *port_p)
{
    int fd = tcp_listen(port_p, 8);
    struct timeval soon = {.tv_usec = 1000};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
    return fd;
}

/* x calls an acceptor that answers with `len` bytes and hangs up. */
static void lie(const uint8_t *answer, size_t len, const char *word)
{
    ct_pair_t pair;
    tcp_target_t target;
    uint16_t port;
    int listener = tcp_listen_nonblocking(&port), fd;
    uint8_t hello[TCP_HELLO_SIZE];

    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    target.len = tcp_address_with(target.id, &port, 1, target.address);
    ct_end_connect(&pair.x, PSC_ROLE_CONNECTOR, ct_token, target.address,
                   target.len);
    fd = answer_call(&pair, listener, hello);
    if (len > 0)
        tcp_put(fd, answer, len);
    if (len < TCP_CHALLENGE_SIZE)
        close(fd);
    ct_until(&pair, pair.x.failed);
    ct_check(!pair.x.up && strstr(pair.x.reason, word), "%s", pair.x.reason);
    printf("%s\n", pair.x.reason);
    if (len >= TCP_CHALLENGE_SIZE)
        close(fd);
    close(listener);
    ct_pair_down(&pair);
}

CASE(acceptor_that_lies)
{
    uint8_t answer[TCP_CHALLENGE_SIZE] = "HTTP/1.1 400 Bad Request\r\n\r\n";

    lie(answer, sizeof(answer), "another protocol");
    lie(answer, 0, "hung up");
    lie(answer, 9, "hung up");
    tcp_wire_store64(answer, TCP_CHALLENGE_MAGIC);
    lie(answer, sizeof(answer), "token");
}

/* Searches all bytes that a connector sends to an impostor for the token. */
CASE(token_never_travels)
{
    ct_pair_t pair;
    tcp_target_t target;
    uint16_t port;
    int listener = tcp_listen_nonblocking(&port), fd;
    uint8_t said[TCP_HELLO_SIZE];

    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    target.len = tcp_address_with(target.id, &port, 1, target.address);
    ct_end_connect(&pair.x, PSC_ROLE_CONNECTOR, ct_token, target.address,
                   target.len);
    fd = answer_call(&pair, listener, said);
    tcp_progress_ms(pair.a, 50);
    for (size_t i = 0; i + 8 <= sizeof(said); i++) {
        for (size_t j = 0; j + 8 <= PSC_TOKEN_SIZE; j++)
            ct_check(memcmp(said + i, ct_token + j, 8) != 0, "the token");
    }
    ct_check(recv(fd, said, 1, MSG_DONTWAIT) < 0, "more before a challenge");
    close(fd);
    close(listener);
    ct_pair_down(&pair);
}

/* ---- addresses that do not answer ---- */

/* A port whose listener accepts no more connections, so that calls hang. */
static int tcp_listen_full(uint16_t *port_p, int *fillers, size_t n)
{
    int listener = tcp_listen(port_p, 0);
    struct sockaddr_in to = {
        .sin_family = AF_INET,
        .sin_port = htons(*port_p),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };

    for (size_t i = 0; i < n; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(fillers[i], (struct sockaddr *)&to, sizeof(to));
    }
    return listener;
}

/* A port that is bound without a listener. */
static uint16_t tcp_closed_port(void)
{
    struct sockaddr_in name = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    socklen_t len = sizeof(name);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    ct_check(bind(fd, (struct sockaddr *)&name, len) == 0 &&
                 getsockname(fd, (struct sockaddr *)&name, &len) == 0,
             "bind");
    return ntohs(name.sin_port);
}

/* The address has a closed port, a full one, then the right one. */
CASE(next_address_is_tried)
{
    ct_pair_t pair;
    tcp_target_t target;
    uint16_t ports[3];
    int fillers[4], full;

    tcp_set("CONNECT_TIMEOUT", CT_SECOND / 5, "0.2");
    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    ports[0] = tcp_closed_port();
    full = tcp_listen_full(&ports[1], fillers, 4);
    ports[2] = target.port;
    connect_in_the_end(&pair, ports, 3);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    for (int i = 0; i < 4; i++)
        close(fillers[i]);
    close(full);
    ct_pair_down(&pair);
}

/* An address that does not answer, and one whose owner sends nothing, do not
 * delay the connection by their time limits, which are longer than the case. */
CASE(other_addresses_are_tried_beside_it)
{
    ct_pair_t pair;
    tcp_target_t target;
    uint16_t ports[3];
    int fillers[4], full, silent;

    tcp_set("CONNECT_TIMEOUT", 1000 * CT_SECOND, "1000");
    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    full = tcp_listen_full(&ports[0], fillers, 4);
    silent = tcp_listen(&ports[1], 4);
    ports[2] = target.port;
    connect_in_the_end(&pair, ports, 3);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    for (int i = 0; i < 4; i++)
        close(fillers[i]);
    close(full);
    close(silent);
    ct_pair_down(&pair);
}

/* Another process listens there and has no such endpoint. */
CASE(somebody_else_is_at_an_address)
{
    ct_pair_t pair, other;
    tcp_target_t target, stranger;
    uint16_t ports[2];

    ct_pair_open(&pair);
    ct_pair_open(&other);
    tcp_target_of(&pair.y, &target);
    tcp_target_of(&other.y, &stranger);
    ports[0] = stranger.port;
    ports[1] = target.port;
    target.len = tcp_address_with(target.id, ports, 2, target.address);
    ct_end_connect(&pair.x, PSC_ROLE_CONNECTOR, ct_token, target.address,
                   target.len);
    tcp_await_call(&pair.y, &pair.x);
    ct_until(&pair, (ct_pair_progress(&other), pair.x.up && pair.y.up));
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    ct_pair_down(&other);
    ct_pair_down(&pair);
}

CASE(nobody_answers)
{
    ct_pair_t pair;
    tcp_target_t target;
    uint16_t ports[2];
    int fillers[4], full;

    tcp_set("CONNECT_TIMEOUT", CT_SECOND / 10, "0.1");
    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    ports[0] = tcp_closed_port();
    full = tcp_listen_full(&ports[1], fillers, 4);
    target.len = tcp_address_with(target.id, ports, 2, target.address);
    ct_end_connect(&pair.x, PSC_ROLE_CONNECTOR, ct_token, target.address,
                   target.len);
    ct_until(&pair, pair.x.failed);
    ct_check(pair.x.status == PSC_ERR_CONNECT, "%d", pair.x.status);
    ct_check(strstr(pair.x.reason, "refused"), "%s", pair.x.reason);
    ct_check(strstr(pair.x.reason, "PSP_TCP_CONNECT_TIMEOUT"), "%s",
             pair.x.reason);
    printf("%s\n", pair.x.reason);
    for (int i = 0; i < 4; i++)
        close(fillers[i]);
    close(full);
    ct_pair_down(&pair);
}

/* No descriptor is left for a caller: it waits in the kernel's queue and is
 * accepted later. */
CASE(descriptors_run_out)
{
    ct_pair_t pair;
    tcp_target_t target;
    struct rlimit limit, tight;
    int fd;

    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    fd = call(&target);
    getrlimit(RLIMIT_NOFILE, &limit);
    tight =
        (struct rlimit){.rlim_cur = (rlim_t)fd + 1, .rlim_max = limit.rlim_max};
    ct_check(setrlimit(RLIMIT_NOFILE, &tight) == 0, "setrlimit");
    tcp_progress_ms(pair.b, 50);
    ct_check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    close(fd);
    tcp_progress_ms(pair.b, 300);
    ct_pair_connect(&pair);
    ct_pair_down(&pair);
}
