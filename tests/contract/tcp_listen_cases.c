/* Cases of tcp: callers of the listener. */
#include <errno.h>
#include <sys/resource.h>

#include "tcp_cases.h"

#define PLACES 16 /* where the process may have that many descriptors: */
#define FEW_DESCRIPTORS 127

static unsigned roll(unsigned *dice)
{
    return (*dice = *dice * 1103515245 + 12345) >> 8;
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

    ct_set("ACCEPT_TIMEOUT", CT_SECOND / 10, "0.1");
    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    for (int i = 0; i < 40; i++) {
        silent[i] = tcp_dial(target.port);
        if (i % 2)
            tcp_put(silent[i], "PSCP", 4);
    }
    tcp_connect_in_the_end(&pair, &target.port, 1);
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
    ct_end_join(&pair.y, &pair.y, PSC_ROLE_ACCEPTOR);
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
    ct_end_join(&pair.y, &pair.y, PSC_ROLE_ACCEPTOR);
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

    ct_set("ACCEPT_TIMEOUT", INT64_MAX, "inf");
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

    ct_set("RAILS", 0, "lo");
    ct_set("ACCEPT_TIMEOUT", INT64_MAX, "inf");
    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    fd = tcp_dial_at("127.0.0.2", target.port);
    if (fd >= 0)
        expect_hang_up(&pair, fd);
    ct_end_join(&pair.y, &pair.y, PSC_ROLE_ACCEPTOR);
    fd = call(&target);
    ct_check(tcp_take(pair.b, fd, challenge, sizeof(challenge)), "hung up");
    close(fd);
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
