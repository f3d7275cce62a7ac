/* Cases of tcp: acceptors that answer a call, and addresses that do not. */
#include "tcp_cases.h"

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
    tcp_call(&pair.x, target, &port, 1);
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
    tcp_call(&pair.x, target, &port, 1);
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

/* A listener that accepts no more connections, so that calls hang: the first of
 * these sockets; the others fill its queue. */
typedef struct {
    int sockets[5];
} tcp_full_t;

static uint16_t tcp_full_open(tcp_full_t *full)
{
    uint16_t port;
    struct sockaddr_in to = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };

    full->sockets[0] = tcp_listen(&port, 0);
    to.sin_port = htons(port);
    for (int i = 1; i < 5; i++) {
        full->sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(full->sockets[i], (struct sockaddr *)&to, sizeof(to));
    }
    return port;
}

static void tcp_full_close(tcp_full_t *full)
{
    for (int i = 0; i < 5; i++)
        close(full->sockets[i]);
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
    tcp_full_t full;

    ct_set("CONNECT_TIMEOUT", CT_SECOND / 5, "0.2");
    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    ports[0] = tcp_closed_port();
    ports[1] = tcp_full_open(&full);
    ports[2] = target.port;
    tcp_connect_in_the_end(&pair, ports, 3);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    tcp_full_close(&full);
    ct_pair_down(&pair);
}

/* An address that does not answer, and one whose owner sends nothing, do not
 * delay the connection by their time limits, which are longer than the case. */
CASE(other_addresses_are_tried_beside_it)
{
    ct_pair_t pair;
    tcp_target_t target;
    uint16_t ports[3];
    tcp_full_t full;
    int silent;

    ct_set("CONNECT_TIMEOUT", 1000 * CT_SECOND, "1000");
    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    ports[0] = tcp_full_open(&full);
    silent = tcp_listen(&ports[1], 4);
    ports[2] = target.port;
    tcp_connect_in_the_end(&pair, ports, 3);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    tcp_full_close(&full);
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
    tcp_call(&pair.x, target, ports, 2);
    ct_end_join(&pair.y, &pair.x, PSC_ROLE_ACCEPTOR);
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
    tcp_full_t full;

    ct_set("CONNECT_TIMEOUT", CT_SECOND / 10, "0.1");
    ct_pair_open(&pair);
    tcp_target_of(&pair.y, &target);
    ports[0] = tcp_closed_port();
    ports[1] = tcp_full_open(&full);
    tcp_call(&pair.x, target, ports, 2);
    ct_until(&pair, pair.x.failed);
    ct_check(pair.x.status == PSC_ERR_CONNECT, "%d", pair.x.status);
    ct_check(strstr(pair.x.reason, "refused"), "%s", pair.x.reason);
    ct_check(strstr(pair.x.reason, "PSP_TCP_CONNECT_TIMEOUT"), "%s",
             pair.x.reason);
    printf("%s\n", pair.x.reason);
    tcp_full_close(&full);
    ct_pair_down(&pair);
}
