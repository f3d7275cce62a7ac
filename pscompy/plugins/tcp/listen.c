/* The listener, and the callers: accepted sockets that have not named an
 * endpoint. A caller may be any program: a port scan, a half-open stream, a web
 * browser. The number of callers is bounded, a caller stays for a limited time,
 * and only a fixed number of bytes is read from it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/kit/restart.h"
#include "tcp.h"

/* pause before the next accept() after one has failed */
#define TCP_ACCEPT_RETRY_NS 100000000

/* ---- callers ---- */

/* Returns the bucket in which a caller is counted. Callers from one IPv4
 * address, or from one IPv6 network, share a bucket. */
static unsigned tcp_caller_bucket(const tcp_sockaddr_t *address)
{
    const uint8_t *bytes = (const uint8_t *)&address->v4.sin_addr;
    size_t len = sizeof(address->v4.sin_addr);
    uint32_t hash = 2166136261u; /* start value of the hash FNV-1a */

    if (address->any.sa_family == AF_INET6) {
        bytes = address->v6.sin6_addr.s6_addr;
        len = IN6_IS_ADDR_V4MAPPED(&address->v6.sin6_addr) ? 16 : 8;
    }
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash % TCP_BUCKETS;
}

static tcp_caller_t *tcp_caller_create(tcp_iface_t *iface)
{
    tcp_caller_t *caller = calloc(1, sizeof(*caller));

    if (caller)
        caller->iface = iface;
    return caller;
}

/* Takes a tcp_caller_t for an accepted socket, from the list `vacant` or newly
 * allocated. Returns NULL if no memory is left. */
static tcp_caller_t *tcp_caller_take(tcp_iface_t *iface, unsigned bucket)
{
    tcp_caller_t *caller = psc_list_empty(&iface->vacant)
                               ? tcp_caller_create(iface)
                               : psc_container_of(psc_list_pop(&iface->vacant),
                                                  tcp_caller_t, link);

    if (!caller)
        return NULL;
    psc_list_push(&iface->callers, &caller->link);
    iface->n_callers++;
    iface->n_from[bucket]++;
    caller->bucket = bucket;
    return caller;
}

/* Puts the tcp_caller_t of a caller that has gone into the list `vacant`; the
 * caller's socket is closed or passed on. */
static void tcp_caller_release(tcp_caller_t *caller)
{
    tcp_iface_t *iface = caller->iface;

    iface->n_callers--;
    iface->n_from[caller->bucket]--;
    psc_list_remove(&caller->link);
    psc_list_push_front(&iface->vacant, &caller->link);
}

static void tcp_caller_drop(tcp_caller_t *caller, const char *why)
{
    psc_iface_log(&caller->iface->super, 4, "a caller is turned away: %s", why);
    tcp_source_close(caller->iface, &caller->source);
    tcp_caller_release(caller);
}

/* Takes the socket out of the caller's structure, and releases the structure.
 * Returns the socket's descriptor. */
static int tcp_caller_detach(tcp_caller_t *caller)
{
    int fd = caller->source.fd;

    (void)tcp_source_watch(caller->iface, &caller->source, 0);
    caller->source.fd = -1;
    tcp_caller_release(caller);
    return fd;
}

static void tcp_caller_ready(tcp_source_t *source, uint32_t events)
{
    tcp_caller_t *caller = psc_container_of(source, tcp_caller_t, source);
    ssize_t n = PSC_RESTART(recv(source->fd, caller->hello + caller->have,
                                 TCP_HELLO_SIZE - caller->have, 0));

    (void)events;
    if (n < 0 && errno == EAGAIN)
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

static void tcp_caller_admit(tcp_iface_t *iface, int fd, unsigned bucket)
{
    tcp_caller_t *caller = tcp_caller_take(iface, bucket);

    if (!caller) {
        close(fd);
        return;
    }
    tcp_socket_tune(&iface->settings, fd);
    caller->source = (tcp_source_t){.ready = tcp_caller_ready, .fd = fd};
    caller->have = 0;
    caller->deadline = psc_clock_deadline(iface->settings.accept_ns);
    tcp_iface_wake_at(iface, caller->deadline);
    if (tcp_source_watch(iface, &caller->source, EPOLLIN) != PSC_OK)
        tcp_caller_drop(caller, "epoll takes no more");
    else
        /* read at once, because the hello has usually arrived already */
        tcp_caller_ready(&caller->source, EPOLLIN);
}

/* Processes the bytes of the caller that were not read yet, then drops the
 * caller if its hello is still incomplete. */
static void tcp_caller_end(tcp_caller_t *caller, const char *why)
{
    tcp_caller_ready(&caller->source, EPOLLIN);
    if (caller->source.fd >= 0)
        tcp_caller_drop(caller, why);
}

/* Drops the oldest caller of the fullest bucket, to make room for a new caller.
 * A legitimate caller sends its hello within milliseconds, so it is not the
 * oldest. */
static void tcp_caller_push_out(tcp_iface_t *iface)
{
    unsigned most = 0;

    for (unsigned i = 1; i < TCP_BUCKETS; i++) {
        if (iface->n_from[i] > iface->n_from[most])
            most = i;
    }
    psc_list_for_each(caller, &iface->callers, tcp_caller_t, link) {
        if (caller->bucket == most) {
            tcp_caller_end(caller, "it makes room for a newer one");
            return;
        }
    }
}

/* Drops callers whose time-out has expired. All callers have the same time-out,
 * so the list of callers is in the order of deadlines. */
int64_t tcp_listener_expire(tcp_iface_t *iface, int64_t now)
{
    (void)tcp_source_watch(iface, &iface->listener, EPOLLIN);
    while (!psc_list_empty(&iface->callers)) {
        tcp_caller_t *caller =
            psc_container_of(iface->callers.next, tcp_caller_t, link);

        if (caller->deadline > now)
            return caller->deadline;
        tcp_caller_end(caller, "it said nothing (PSP_TCP_ACCEPT_TIMEOUT)");
    }
    return TCP_NEVER;
}

/* Limits the number of callers to one eighth of the descriptors that the
 * process may have. */
static void tcp_callers_limit(tcp_iface_t *iface)
{
    struct rlimit limit = {.rlim_cur = TCP_CALLERS_MAX * TCP_CALLERS_SHARE};

    getrlimit(RLIMIT_NOFILE, &limit);
    iface->n_places = TCP_CALLERS_MAX;
    if (limit.rlim_cur / TCP_CALLERS_SHARE < TCP_CALLERS_MAX)
        iface->n_places = (unsigned)(limit.rlim_cur / TCP_CALLERS_SHARE) + 1;
}

static void tcp_callers_close(tcp_iface_t *iface)
{
    while (!psc_list_empty(&iface->callers))
        tcp_caller_drop(
            psc_container_of(iface->callers.next, tcp_caller_t, link),
            "we close");
}

void tcp_callers_free(tcp_iface_t *iface)
{
    while (!psc_list_empty(&iface->vacant))
        free(
            psc_container_of(psc_list_pop(&iface->vacant), tcp_caller_t, link));
}

/* ---- the listener ---- */

/* Handles a failed accept(). If the process has no descriptor left, drops a
 * caller to free one. Otherwise, or if there is no caller, stops watching the
 * listener for TCP_ACCEPT_RETRY_NS; connections wait in the kernel's queue. */
static void tcp_listener_failed(tcp_iface_t *iface, int error)
{
    bool exhausted = error == EMFILE || error == ENFILE;

    if (exhausted && iface->n_callers > 0) {
        tcp_caller_push_out(iface);
        return;
    }
    psc_iface_log(&iface->super, 2, "accept: %s%s; trying again soon",
                  strerror(error), exhausted ? " (ulimit -n)" : "");
    (void)tcp_source_watch(iface, &iface->listener, 0);
    tcp_iface_wake_at(iface, psc_clock_deadline(TCP_ACCEPT_RETRY_NS));
}

/* Returns false for a caller that has dialled an address of this host that does
 * not belong to this rail. Such callers arrive because a rail with several
 * addresses listens on the wildcard address. */
static bool tcp_listener_means(tcp_iface_t *iface, int fd)
{
    if (!iface->settings.bound || tcp_address_ours(iface, fd))
        return true;
    psc_iface_log(&iface->super, 4,
                  "a caller is turned away: it dialled another interface");
    return false;
}

static void tcp_listener_ready(tcp_source_t *source, uint32_t events)
{
    tcp_iface_t *iface = psc_container_of(source, tcp_iface_t, listener);

    (void)events;
    for (int i = 0; i < TCP_EVENTS_MAX; i++) {
        tcp_sockaddr_t from = {0};
        socklen_t len = sizeof(from);
        int fd = PSC_RESTART(
            accept4(source->fd, &from.any, &len, SOCK_NONBLOCK | SOCK_CLOEXEC));

        if (fd < 0) {
            if (errno != EAGAIN && errno != ECONNABORTED)
                tcp_listener_failed(iface, errno);
            return;
        }
        iface->handled++;
        if (!tcp_listener_means(iface, fd)) {
            close(fd);
            continue;
        }
        if (iface->n_callers == iface->n_places)
            tcp_caller_push_out(iface);
        tcp_caller_admit(iface, fd, tcp_caller_bucket(&from));
    }
}

/* Chooses the address to which the listener is bound: the only address of the
 * interface, or, if there are several, the wildcard address (of IPv6 if any
 * address is IPv6); tcp_listener_means() then checks which address a caller has
 * dialled. */
static void tcp_listener_address(const tcp_iface_t *iface,
                                 tcp_sockaddr_t *address_p)
{
    bool v6 = false;

    for (unsigned i = 0; i < iface->n_addresses; i++)
        v6 |= iface->addresses[i].any.sa_family == AF_INET6;
    memset(address_p, 0, sizeof(*address_p));
    /* an address of zeros is the wildcard address */
    address_p->any.sa_family = v6 ? AF_INET6 : AF_INET;
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

/* Stores the listener's port in every address of the interface. */
static void tcp_listener_learn_port(tcp_iface_t *iface)
{
    tcp_sockaddr_t bound = {0};
    socklen_t len = sizeof(bound);

    getsockname(iface->listener.fd, &bound.any, &len);
    for (unsigned i = 0; i < iface->n_addresses; i++)
        tcp_address_set_port(&iface->addresses[i], tcp_address_port(&bound));
}

/* Returns the variable that has chosen the address, followed by "and ", or an
 * empty text if none of them is set. */
static const char *tcp_listener_chooser(const tcp_settings_t *settings)
{
    if (settings->bound)
        return "PSP_TCP_RAILS and ";
    if (*settings->host)
        return "PSP_TCP_HOST and ";
    if (*settings->network)
        return "PSP_TCP_NETWORK (its default is PSP_NETWORK) and ";
    return "";
}

/* Prints the ports that were tried: a range, one port, or nothing if the kernel
 * was to choose the port. */
static void tcp_listener_print_ports(const tcp_settings_t *settings, char *text,
                                     size_t size)
{
    unsigned first = settings->port_first, last = settings->port_last;

    *text = 0;
    if (first != last)
        snprintf(text, size, ", port %u-%u", first, last);
    else if (first != 0)
        snprintf(text, size, ", port %u", first);
}

static void tcp_listener_explain(const tcp_settings_t *settings,
                                 const tcp_sockaddr_t *address, int error,
                                 char *reason)
{
    char name[64], ports[32];

    tcp_address_print(address, name, sizeof(name));
    tcp_listener_print_ports(settings, ports, sizeof(ports));
    snprintf(reason, PSC_REASON_MAX,
             "listening on %s%s: %s; see %sPSP_TCP_PORT", name, ports,
             strerror(error), tcp_listener_chooser(settings));
}

psc_status_t tcp_listener_open(tcp_iface_t *iface, char *reason)
{
    const int off = 0, on = 1;
    tcp_sockaddr_t address;
    int fd;

    tcp_listener_address(iface, &address);
    fd = socket(address.any.sa_family,
                SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    iface->listener = (tcp_source_t){.ready = tcp_listener_ready, .fd = fd};
    if (fd >= 0 && address.any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        tcp_socket_tune(&iface->settings, fd);
    }
    tcp_callers_limit(iface);
    if (fd < 0 || !tcp_listener_bind(iface, fd) ||
        tcp_source_watch(iface, &iface->listener, EPOLLIN) != PSC_OK) {
        tcp_listener_explain(&iface->settings, &address, errno, reason);
        return PSC_ERR_TRANSPORT;
    }
    tcp_listener_learn_port(iface);
    return PSC_OK;
}

void tcp_listener_close(tcp_iface_t *iface)
{
    tcp_callers_close(iface);
    tcp_source_close(iface, &iface->listener);
}
