/* Cases of tcp alone: settings and addresses; the tools of its other cases;
 * and the table of all of them. */
#include "tcp_cases.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>

/* ---- tools ---- */

void tcp_target_of(ct_end_t *end, tcp_target_t *target_p)
{
    uint16_t port;

    target_p->len = PSC_ADDRESS_MAX;
    ct_check(ct_ops->ep_address(end->ep, target_p->address, &target_p->len) ==
                 PSC_OK,
             "ep_address");
    target_p->id = tcp_wire_load64(target_p->address + 16);
    memcpy(&port, target_p->address + TCP_ADDRESS_HEAD + 2, sizeof(port));
    target_p->port = le16toh(port);
}

static struct sockaddr_in tcp_loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons(port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
}

int tcp_dial(uint16_t port)
{
    return tcp_dial_from("127.0.0.1", port);
}

int tcp_dial_from(const char *source, uint16_t port)
{
    struct sockaddr_in to = tcp_loopback(port), from = {.sin_family = AF_INET};
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ct_check(fd >= 0, "socket");
    inet_pton(AF_INET, source, &from.sin_addr);
    ct_check(bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0, "bind");
    ct_check(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0, "connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

int tcp_dial_at(const char *ip, uint16_t port)
{
    struct sockaddr_in to = tcp_loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ct_check(fd >= 0, "socket");
    inet_pton(AF_INET, ip, &to.sin_addr);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    ct_check(errno == ECONNREFUSED, "connect");
    close(fd);
    return -1;
}

int tcp_listen(uint16_t *port_p, int backlog)
{
    struct sockaddr_in at = tcp_loopback(0);
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ct_check(fd >= 0, "socket");
    ct_check(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "bind");
    ct_check(listen(fd, backlog) == 0, "listen");
    getsockname(fd, (struct sockaddr *)&at, &len);
    *port_p = ntohs(at.sin_port);
    return fd;
}

void tcp_call(ct_end_t *end, tcp_target_t target, const uint16_t *ports,
              unsigned n)
{
    const uint8_t loopback[4] = {127, 0, 0, 1};
    uint8_t *p = target.address + TCP_ADDRESS_HEAD;

    target.address[1] = (uint8_t)n;
    for (unsigned i = 0; i < n; i++, p += 8) {
        uint16_t port = htole16(ports[i]);

        p[0] = 4;
        p[1] = 0;
        memcpy(p + 2, &port, 2);
        memcpy(p + 4, loopback, 4);
    }
    ct_end_connect(end, PSC_ROLE_CONNECTOR, ct_token, target.address,
                   (size_t)(p - target.address));
}

void tcp_connect_in_the_end(ct_pair_t *pair, const uint16_t *ports, unsigned n)
{
    tcp_target_t target;

    for (int attempt = 0; attempt < 50; attempt++) {
        tcp_target_of(&pair->y, &target);
        ct_end_join(&pair->y, &pair->x, PSC_ROLE_ACCEPTOR);
        tcp_call(&pair->x, target, ports, n);
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

void tcp_put(int fd, const void *bytes, size_t len)
{
    ct_check(send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len, "send");
}

bool tcp_take(ct_side_t *side, int fd, void *bytes, size_t len)
{
    int64_t deadline = ct_deadline();

    for (size_t at = 0; at < len;) {
        ssize_t n = recv(fd, (char *)bytes + at, len - at, MSG_DONTWAIT);

        if (n == 0)
            return false;
        at += n > 0 ? (size_t)n : 0;
        ct_side_progress(side);
        ct_check(psc_clock_now() < deadline, "nothing comes");
    }
    return true;
}

void tcp_progress_ms(ct_side_t *side, int ms)
{
    int64_t end = psc_clock_deadline(ms * 1000000ll);

    while (psc_clock_now() < end)
        ct_side_progress(side);
}

size_t tcp_count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    size_t n = 0;

    ct_check(folder, "/proc/self/fd");
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* ---- settings ---- */

static void open_refused(const char *word)
{
    size_t descriptors = tcp_count_descriptors();

    ct_side_refused(word);
    ct_check(tcp_count_descriptors() == descriptors, "something was left");
}

CASE(bad_settings_are_named)
{
    ct_set("NETWORK", 0, "203.0.113.0/24");
    open_refused("PSP_TCP_NETWORK");
    ct_set("NETWORK", 0, "no-such-interface");
    open_refused("PSP_TCP_NETWORK");
    /* matches in all bits but the ninth */
    ct_set("NETWORK", 0, "127.128.0.0/9");
    open_refused("PSP_TCP_NETWORK");
    ct_set("NETWORK", 0, "");
    ct_set("HOST", 0, "203.0.113.7");
    open_refused("PSP_TCP_HOST");
    ct_set("HOST", 0, "");
    ct_set("PORT", 0, "70000");
    open_refused("PSP_TCP_PORT");
    ct_set("PORT", 0, "0");
    ct_set("BUFFER_SIZE", 1, "1");
    open_refused("PSP_TCP_BUFFER_SIZE");
}

CASE(taken_port_is_passed_over)
{
    tcp_target_t one, two;
    ct_pair_t pair;
    uint16_t free_port;
    char range[32], said[32];
    int fd = tcp_listen(&free_port, 1);

    if (free_port > 65000) {
        close(fd);
        ct_skip("the kernel gave a port near the end of the range");
    }
    snprintf(range, sizeof(range), "%u-%u", free_port, free_port + 50);
    ct_set("PORT", 0, range);
    ct_set("HOST", 0, "127.0.0.1");
    ct_pair_up(&pair);
    tcp_target_of(&pair.x, &one);
    tcp_target_of(&pair.y, &two);
    ct_check(one.port > free_port && one.port <= free_port + 50, "port %u",
             one.port);
    ct_check(two.port > one.port, "port %u", two.port);
    ct_pair_down(&pair);
    snprintf(range, sizeof(range), "%u", free_port);
    ct_set("PORT", 0, range);
    snprintf(said, sizeof(said), "127.0.0.1, port %u: ", free_port);
    open_refused(said);
    open_refused("; see PSP_TCP_HOST and PSP_TCP_PORT");
    ct_set("HOST", 0, "");
    ct_set("NETWORK", 0, "127.0.0.0/8");
    open_refused("; see PSP_TCP_NETWORK (its default is PSP_NETWORK) and ");
    ct_set("NETWORK", 0, "");
    close(fd);
    /* an address that this host does not have */
    ct_set("PORT", 0, "0");
    ct_set("HOST", 0, "203.0.113.7");
    open_refused("203.0.113.7: Cannot assign");
}

/* Checks that the address holds exactly the selected IP address. */
static void expect_address(const char *name, const char *text, int family,
                           const char *ip)
{
    ct_pair_t pair;
    tcp_target_t target;
    uint8_t bytes[16];
    bool v6 = family == AF_INET6;

    ct_set(name, 0, text);
    ct_pair_up(&pair);
    tcp_target_of(&pair.y, &target);
    ct_check(target.address[1] == 1, "%u addresses", target.address[1]);
    ct_check(target.address[TCP_ADDRESS_HEAD] == (v6 ? 6 : 4), "family");
    inet_pton(family, ip, bytes);
    ct_check(
        memcmp(bytes, target.address + TCP_ADDRESS_HEAD + 4, v6 ? 16 : 4) == 0,
        "not %s", ip);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    ct_pair_down(&pair);
    ct_set(name, 0, "");
}

static bool tcp_has_ipv6(void)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6,
                              .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

CASE(chosen_address_is_told)
{
    expect_address("HOST", "127.0.0.1", AF_INET, "127.0.0.1");
    expect_address("NETWORK", "127.0.0.0/8", AF_INET, "127.0.0.1");
    expect_address("NETWORK", " 203.0.113.0/24,127.0.0.1", AF_INET,
                   "127.0.0.1");
}

CASE(ipv6_connects)
{
    if (!tcp_has_ipv6())
        ct_skip("this machine has no IPv6 loopback");
    expect_address("HOST", "::1", AF_INET6, "::1");
    expect_address("NETWORK", "::1/128", AF_INET6, "::1");
}
