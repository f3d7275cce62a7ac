/* Selects the addresses to listen on, which are also sent to peers: those of
 * PSP_TCP_HOST, else those that PSP_TCP_NETWORK (by default PSP_NETWORK)
 * selects, else all addresses of this host, with loopback last. If
 * PSP_TCP_RAILS is set, selects the addresses of one rail. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "pscompy/transport/kit/settings.h"
#include "tcp.h"

#define TCP_ITEM_MAX 256

/* A network: an IP address as bytes, and the length of the network's prefix. */
typedef struct tcp_net {
    sa_family_t family;
    uint8_t ip[16];
    unsigned bits;
} tcp_net_t;

static const uint8_t *tcp_sockaddr_ip(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr;
    return (const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr;
}

static unsigned tcp_family_bytes(sa_family_t family)
{
    return family == AF_INET6 ? 16 : 4;
}

static bool tcp_net_holds(const tcp_net_t *net, const struct sockaddr *address)
{
    const uint8_t *ip = tcp_sockaddr_ip(address);
    unsigned whole = net->bits / 8, rest = net->bits % 8;

    if (address->sa_family != net->family || memcmp(ip, net->ip, whole) != 0)
        return false;
    return rest == 0 || (ip[whole] ^ net->ip[whole]) >> (8 - rest) == 0;
}

static unsigned tcp_netmask_bits(const struct sockaddr *mask)
{
    const uint8_t *ip = tcp_sockaddr_ip(mask);
    unsigned bits = 0, all = 8 * tcp_family_bytes(mask->sa_family);

    while (bits < all && ip[bits / 8] & 0x80 >> bits % 8)
        bits++;
    return bits;
}

/* ---- this host's addresses ---- */

static bool tcp_ifaddr_usable(const struct ifaddrs *entry)
{
    sa_family_t family = entry->ifa_addr ? entry->ifa_addr->sa_family : 0;

    if (!(entry->ifa_flags & IFF_UP) || !entry->ifa_netmask)
        return false;
    /* leave out link-local addresses, which are of no use on other hosts */
    if (family == AF_INET6)
        return !IN6_IS_ADDR_LINKLOCAL(
            &((struct sockaddr_in6 *)entry->ifa_addr)->sin6_addr);
    return family == AF_INET;
}

static void tcp_address_add(tcp_iface_t *iface, const struct sockaddr *from)
{
    tcp_sockaddr_t *address = &iface->addresses[iface->n_addresses];

    if (iface->n_addresses == TCP_ADDRESSES_MAX)
        return;
    memset(address, 0, sizeof(*address));
    address->any.sa_family = from->sa_family;
    if (from->sa_family == AF_INET6)
        memcpy(&address->v6.sin6_addr, tcp_sockaddr_ip(from), 16);
    else
        memcpy(&address->v4.sin_addr, tcp_sockaddr_ip(from), 4);
    for (unsigned i = 0; i < iface->n_addresses; i++) {
        if (memcmp(&iface->addresses[i], address, sizeof(*address)) == 0)
            return;
    }
    iface->n_addresses++;
}

static void tcp_address_add_all(tcp_iface_t *iface,
                                const struct ifaddrs *entries, bool loopback)
{
    for (const struct ifaddrs *e = entries; e; e = e->ifa_next) {
        if (tcp_ifaddr_usable(e) && !!(e->ifa_flags & IFF_LOOPBACK) == loopback)
            tcp_address_add(iface, e->ifa_addr);
    }
}

/* ---- PSP_TCP_NETWORK ---- */

static bool tcp_net_parse(char *text, tcp_net_t *net_p, bool *exact_p)
{
    char *slash = strchr(text, '/'), *end;
    unsigned long bits;

    if (slash)
        *slash = 0;
    net_p->family = strchr(text, ':') ? AF_INET6 : AF_INET;
    net_p->bits = 8 * tcp_family_bytes(net_p->family);
    *exact_p = !slash;
    if (inet_pton(net_p->family, text, net_p->ip) != 1)
        return false;
    if (slash) {
        bits = strtoul(slash + 1, &end, 10);
        if (end == slash + 1 || *end || bits > net_p->bits)
            return false;
        net_p->bits = (unsigned)bits;
    }
    return true;
}

static void tcp_network_add_name(tcp_iface_t *iface,
                                 const struct ifaddrs *entries,
                                 const char *name)
{
    for (const struct ifaddrs *e = entries; e; e = e->ifa_next) {
        if (tcp_ifaddr_usable(e) && strcmp(e->ifa_name, name) == 0)
            tcp_address_add(iface, e->ifa_addr);
    }
}

/* Adds the addresses of this host that an item of PSP_TCP_NETWORK selects. If
 * the item is a network, these are the addresses inside it; if it is a host
 * (`exact`), the addresses whose network contains that host. */
static void tcp_network_add_net(tcp_iface_t *iface,
                                const struct ifaddrs *entries, tcp_net_t net,
                                bool exact)
{
    for (const struct ifaddrs *e = entries; e; e = e->ifa_next) {
        if (!tcp_ifaddr_usable(e) || e->ifa_addr->sa_family != net.family)
            continue;
        if (exact)
            net.bits = tcp_netmask_bits(e->ifa_netmask);
        if (tcp_net_holds(&net, e->ifa_addr))
            tcp_address_add(iface, e->ifa_addr);
    }
}

static void tcp_network_add_host(tcp_iface_t *iface,
                                 const struct ifaddrs *entries,
                                 const char *name)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;

    if (getaddrinfo(name, NULL, &hints, &found) != 0)
        return;
    for (struct addrinfo *f = found; f; f = f->ai_next) {
        tcp_net_t net = {.family = (sa_family_t)f->ai_family};

        memcpy(net.ip, tcp_sockaddr_ip(f->ai_addr),
               tcp_family_bytes(net.family));
        tcp_network_add_net(iface, entries, net, true);
    }
    freeaddrinfo(found);
}

static void tcp_network_add(tcp_iface_t *iface, const struct ifaddrs *entries,
                            char *item)
{
    tcp_net_t net;
    bool exact;

    if (if_nametoindex(item) != 0)
        tcp_network_add_name(iface, entries, item);
    else if (tcp_net_parse(item, &net, &exact))
        tcp_network_add_net(iface, entries, net, exact);
    else
        tcp_network_add_host(iface, entries, item);
}

/* Calls `add` for each item of the setting `list`. */
static void tcp_items(const char *list,
                      void (*add)(tcp_iface_t *, const struct ifaddrs *,
                                  char *),
                      tcp_iface_t *iface, const struct ifaddrs *entries)
{
    char item[TCP_ITEM_MAX];

    while (psc_setting_item(&list, item, sizeof(item)))
        add(iface, entries, item);
}

/* ---- PSP_TCP_HOST ---- */

static void tcp_host_add(tcp_iface_t *iface, const struct ifaddrs *entries,
                         char *item)
{
    tcp_sockaddr_t address = {0};

    (void)entries;
    if (inet_pton(AF_INET, item, &address.v4.sin_addr) == 1)
        address.any.sa_family = AF_INET;
    else if (inet_pton(AF_INET6, item, &address.v6.sin6_addr) == 1)
        address.any.sa_family = AF_INET6;
    else
        return;
    tcp_address_add(iface, &address.any);
}

/* ---- PSP_TCP_RAILS ---- */

/* Returns true if the network interface `entry` has the address; a loopback
 * interface has all IPv4 addresses of its network. */
static bool tcp_ifaddr_has(const struct ifaddrs *entry,
                           const tcp_sockaddr_t *address)
{
    tcp_net_t own = {.family = entry->ifa_addr->sa_family};

    own.bits = 8 * tcp_family_bytes(own.family);
    memcpy(own.ip, tcp_sockaddr_ip(entry->ifa_addr), own.bits / 8);
    if (own.family == AF_INET && entry->ifa_flags & IFF_LOOPBACK)
        own.bits = tcp_netmask_bits(entry->ifa_netmask);
    return tcp_net_holds(&own, &address->any);
}

static bool tcp_host_has(const struct ifaddrs *entries,
                         const tcp_sockaddr_t *address)
{
    for (const struct ifaddrs *e = entries; e; e = e->ifa_next) {
        if (tcp_ifaddr_usable(e) && tcp_ifaddr_has(e, address))
            return true;
    }
    return false;
}

/* Finds the addresses of the rail that an item of PSP_TCP_RAILS names. If the
 * item is an address, it is used only if this host has it, because the listener
 * could not bind to another one. */
static void tcp_rail_find(tcp_iface_t *found, const struct ifaddrs *entries,
                          char *item)
{
    tcp_host_add(found, entries, item);
    if (found->n_addresses == 0)
        tcp_network_add(found, entries, item);
    else if (!tcp_host_has(entries, &found->addresses[0]))
        found->n_addresses = 0;
}

/* Counts a rail in iface->paths if it has addresses on this host. If `iface`
 * was opened for this rail, `iface` gets these addresses. */
static void tcp_rail_add(tcp_iface_t *iface, const tcp_iface_t *found,
                         unsigned place)
{
    if (found->n_addresses == 0 || iface->paths++ != iface->path)
        return;
    memcpy(iface->addresses, found->addresses, sizeof(found->addresses));
    iface->n_addresses = found->n_addresses;
    iface->rail = place;
}

/* Adds the rails that PSP_TCP_RAILS lists. The place in the list is the rail's
 * id, even if other items of the list are not usable on this host. */
static void tcp_rails_named(tcp_iface_t *iface, const struct ifaddrs *entries,
                            const char *list)
{
    char item[TCP_ITEM_MAX];

    for (unsigned place = 0; psc_setting_item(&list, item, sizeof(item));
         place++) {
        tcp_iface_t found = {.n_addresses = 0};

        tcp_rail_find(&found, entries, item);
        tcp_rail_add(iface, &found, place);
        if (found.n_addresses == 0 && iface->path == 0)
            psc_iface_log(&iface->super, 1,
                          "PSP_TCP_RAILS=%.120s: no interface of this host "
                          "matches rail %u, which is left out",
                          iface->settings.rails, place);
    }
}

/* Adds every network interface that has a usable address, except loopback, as a
 * rail, in the kernel's order. Each network interface has exactly one entry
 * with a link address (AF_PACKET). */
static void tcp_rails_all(tcp_iface_t *iface, const struct ifaddrs *entries)
{
    for (const struct ifaddrs *e = entries; e; e = e->ifa_next) {
        tcp_iface_t found = {.n_addresses = 0};

        if (!e->ifa_addr || e->ifa_addr->sa_family != AF_PACKET ||
            e->ifa_flags & IFF_LOOPBACK)
            continue;
        tcp_network_add_name(&found, entries, e->ifa_name);
        tcp_rail_add(iface, &found, iface->paths);
    }
}

/* ---- the host's identity ---- */

/* Returns a number that is equal in processes that share a loopback interface,
 * because they have the same boot id and the same network namespace. */
static uint64_t tcp_host_id(void)
{
    uint8_t text[64] = {0}, hash[PSC_SIPHASH_SIZE];
    struct stat space = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file) {
        if (!fgets((char *)text, 48, file))
            text[0] = 0;
        fclose(file);
    }
    (void)stat("/proc/self/ns/net", &space);
    tcp_wire_store64(text + 48, (uint64_t)space.st_dev);
    tcp_wire_store64(text + 56, (uint64_t)space.st_ino);
    psc_siphash((const uint8_t *)"pscompy tcp host", text, sizeof(text), hash);
    return tcp_wire_load64(hash);
}

/* ---- selection ---- */

static psc_status_t tcp_address_none(const tcp_settings_t *settings,
                                     char *reason)
{
    if (*settings->rails)
        snprintf(reason, PSC_REASON_MAX,
                 "PSP_TCP_RAILS=%.120s: no interface of this host matches it",
                 settings->rails);
    else if (*settings->host)
        snprintf(reason, PSC_REASON_MAX,
                 "PSP_TCP_HOST=%.120s holds no IP address", settings->host);
    else if (*settings->network)
        snprintf(reason, PSC_REASON_MAX,
                 "PSP_TCP_NETWORK=%.120s: no interface of this host matches it "
                 "(PSP_NETWORK is its default)",
                 settings->network);
    else
        snprintf(reason, PSC_REASON_MAX,
                 "no network interface is up, not even lo");
    return PSC_ERR_TRANSPORT;
}

psc_status_t tcp_address_choose(tcp_iface_t *iface, char *reason)
{
    const tcp_settings_t *settings = &iface->settings;
    struct ifaddrs *entries;

    if (getifaddrs(&entries) < 0) {
        snprintf(reason, PSC_REASON_MAX, "getifaddrs failed");
        return PSC_ERR_TRANSPORT;
    }
    if (strcmp(settings->rails, "all") == 0) {
        tcp_rails_all(iface, entries);
    } else if (*settings->rails) {
        tcp_rails_named(iface, entries, settings->rails);
    } else if (*settings->host) {
        tcp_items(settings->host, tcp_host_add, iface, entries);
    } else if (*settings->network) {
        tcp_items(settings->network, tcp_network_add, iface, entries);
    } else {
        tcp_address_add_all(iface, entries, false);
        tcp_address_add_all(iface, entries, true);
    }
    freeifaddrs(entries);
    iface->host_id = tcp_host_id();
    if (iface->n_addresses == 0)
        return tcp_address_none(settings, reason);
    return PSC_OK;
}
