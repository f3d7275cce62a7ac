/* The listener, and callers until they have said whom they want. A caller may
 * be anybody: a port scan, a half-open stream, a web browser. It costs one of
 * a few slots for a limited time, and nothing beyond a fixed number of bytes
 * is read from it. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "pscompy/core/parts/clock.h"
#include "tcp.h"

#define TCP_ACCEPT_RETRY_NS 100000000 /* after the descriptors ran out */
/* Whom a caller wants follows its connecting at once. While others may be
 * waiting, one that is silent for so long makes room. */
#define TCP_CALLER_GRACE_NS 250000000

void tcp_socket_tune(const tcp_settings_t *settings, int fd)
{
    const int nodelay = settings->nodelay;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof(nodelay));
    if (settings->sndbuf > 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &settings->sndbuf,
                   sizeof(settings->sndbuf));
    if (settings->rcvbuf > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &settings->rcvbuf,
                   sizeof(settings->rcvbuf));
}

/* No network, no congestion. BBR, where it is the system's choice, would pace
 * the loopback by its estimates of bandwidth; Reno does nothing until a packet
 * is lost. */
void tcp_socket_tune_local(int fd)
{
    static const char reno[] = "reno";

    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1);
}

/* ---- callers ---- */

static tcp_caller_t *tcp_caller_slot(tcp_iface_t *iface)
{
    for (unsigned i = 0; i < TCP_CALLERS_MAX; i++) {
        if (iface->callers[i].source.fd < 0)
            return &iface->callers[i];
    }
    return NULL;
}

/* The listener rests while all slots are taken; the kernel's queue waits. */
static void tcp_listener_watch(tcp_iface_t *iface)
{
    bool full = tcp_caller_slot(iface) == NULL;

    (void)tcp_source_watch(iface, &iface->listener, full ? 0 : EPOLLIN);
    if (full)
        tcp_iface_wake_at(iface, psc_clock_deadline(TCP_CALLER_GRACE_NS));
}

static void tcp_caller_drop(tcp_caller_t *caller, const char *why)
{
    psc_iface_log(&caller->iface->super, 4, "a caller is turned away: %s",
                  why);
    tcp_source_close(caller->iface, &caller->source);
    tcp_listener_watch(caller->iface);
}

/* Takes the socket out of the slot. */
static int tcp_caller_detach(tcp_caller_t *caller)
{
    int fd = caller->source.fd;

    (void)tcp_source_watch(caller->iface, &caller->source, 0);
    caller->source.fd = -1;
    tcp_listener_watch(caller->iface);
    return fd;
}

static void tcp_caller_ready(tcp_source_t *source, uint32_t events)
{
    tcp_caller_t *caller = psc_container_of(source, tcp_caller_t, source);
    ssize_t n = recv(source->fd, caller->hello + caller->have,
                     TCP_HELLO_SIZE - caller->have, 0);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        tcp_caller_drop(caller, "it hung up");
        return;
    }
    caller->have += (size_t)n;
    if (caller->have >= 8 && tcp_wire_load64(caller->hello) != TCP_HELLO_MAGIC)
        tcp_caller_drop(caller, "it speaks another protocol");
    else if (caller->have == TCP_HELLO_SIZE)
        tcp_ep_take_call(caller->iface, tcp_caller_detach(caller),
                         caller->hello);
}

static void tcp_caller_admit(tcp_iface_t *iface, tcp_caller_t *caller, int fd)
{
    tcp_socket_tune(&iface->settings, fd);
    *caller = (tcp_caller_t){
        .source = {.ready = tcp_caller_ready, .fd = fd},
        .iface = iface,
        .since = psc_clock_now(),
        .deadline = psc_clock_deadline(iface->settings.accept_ns),
    };
    tcp_iface_wake_at(iface, caller->deadline);
    if (tcp_source_watch(iface, &caller->source, EPOLLIN) != PSC_OK)
        tcp_caller_drop(caller, "epoll takes no more");
    else
        tcp_caller_ready(&caller->source, EPOLLIN); /* mostly it is there */
}

static bool tcp_caller_is_due(const tcp_caller_t *caller, int64_t now,
                              bool full)
{
    struct pollfd fd = {.fd = caller->source.fd, .events = POLLIN};

    if (caller->deadline > now &&
        !(full && caller->since + TCP_CALLER_GRACE_NS <= now))
        return false;
    return poll(&fd, 1, 0) == 0;
}

int64_t tcp_listener_expire(tcp_iface_t *iface, int64_t now)
{
    int64_t next = TCP_NEVER;
    bool full = tcp_caller_slot(iface) == NULL;

    for (unsigned i = 0; i < TCP_CALLERS_MAX; i++) {
        tcp_caller_t *caller = &iface->callers[i];

        if (caller->source.fd < 0)
            continue;
        if (tcp_caller_is_due(caller, now, full))
            tcp_caller_drop(caller, "it said nothing "
                                    "(PSP_TCP_ACCEPT_TIMEOUT)");
        else if (caller->deadline < next)
            next = caller->deadline;
    }
    tcp_listener_watch(iface);
    return next;
}

/* ---- the listener ---- */

static void tcp_listener_ready(tcp_source_t *source, uint32_t events)
{
    tcp_iface_t *iface = psc_container_of(source, tcp_iface_t, listener);
    tcp_caller_t *caller;

    (void)events;
    for (int i = 0; i < TCP_EVENTS_MAX && (caller = tcp_caller_slot(iface));
         i++) {
        int fd = accept4(source->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            iface->handled++;
            tcp_caller_admit(iface, caller, fd);
            continue;
        }
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            break;
        psc_iface_log(&iface->super, 2, "accept: %s; trying again soon",
                      strerror(errno));
        (void)tcp_source_watch(iface, source, 0);
        tcp_iface_wake_at(iface, psc_clock_deadline(TCP_ACCEPT_RETRY_NS));
        return;
    }
    tcp_listener_watch(iface);
}

/* One chosen address: that one. Several: all, in both families if need be. */
static void tcp_listener_address(const tcp_iface_t *iface,
                                 tcp_sockaddr_t *address_p)
{
    bool v6 = false;

    for (unsigned i = 0; i < iface->n_addresses; i++)
        v6 |= iface->addresses[i].any.sa_family == AF_INET6;
    memset(address_p, 0, sizeof(*address_p));
    address_p->any.sa_family = v6 ? AF_INET6 : AF_INET; /* any: all zeros */
    if (iface->n_addresses == 1)
        *address_p = iface->addresses[0];
}

static bool tcp_listener_bind(const tcp_iface_t *iface, int fd)
{
    const tcp_settings_t *settings = &iface->settings;
    tcp_sockaddr_t address;
    unsigned port = settings->port_first;

    tcp_listener_address(iface, &address);
    do {
        tcp_address_set_port(&address, (uint16_t)port);
        if (bind(fd, &address.any, tcp_address_len(&address)) == 0 &&
            listen(fd, settings->backlog) == 0)
            return true;
    } while (errno == EADDRINUSE && port++ < settings->port_last);
    return false;
}

/* Every address gets the port that the kernel gave. */
static void tcp_listener_learn_port(tcp_iface_t *iface)
{
    tcp_sockaddr_t bound = {0};
    socklen_t len = sizeof(bound);

    getsockname(iface->listener.fd, &bound.any, &len);
    for (unsigned i = 0; i < iface->n_addresses; i++)
        tcp_address_set_port(&iface->addresses[i], tcp_address_port(&bound));
}

psc_status_t tcp_listener_open(tcp_iface_t *iface, char *reason)
{
    const int off = 0, on = 1;
    tcp_sockaddr_t address;
    char name[64];
    int fd;

    tcp_listener_address(iface, &address);
    fd = socket(address.any.sa_family,
                SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    iface->listener = (tcp_source_t){.ready = tcp_listener_ready, .fd = fd};
    if (address.any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    tcp_socket_tune(&iface->settings, fd);
    if (fd < 0 || !tcp_listener_bind(iface, fd) ||
        tcp_source_watch(iface, &iface->listener, EPOLLIN) != PSC_OK) {
        tcp_address_print(&address, name, sizeof(name));
        snprintf(reason, PSC_REASON_MAX,
                 "listening on %s, port %u-%u: %s (PSP_TCP_HOST, PSP_NETWORK, "
                 "PSP_TCP_PORT choose)",
                 name, iface->settings.port_first, iface->settings.port_last,
                 strerror(errno));
        return PSC_ERR_TRANSPORT;
    }
    tcp_listener_learn_port(iface);
    return PSC_OK;
}

void tcp_listener_close(tcp_iface_t *iface)
{
    for (unsigned i = 0; i < TCP_CALLERS_MAX; i++)
        tcp_source_close(iface, &iface->callers[i].source);
    tcp_source_close(iface, &iface->listener);
}
