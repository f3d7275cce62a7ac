/* Functions for socket addresses, and for endpoint addresses as bytes
 * (wire.h). */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "tcp.h"

uint16_t tcp_address_port(const tcp_sockaddr_t *address)
{
    return ntohs(address->any.sa_family == AF_INET6 ? address->v6.sin6_port
                                                    : address->v4.sin_port);
}

void tcp_address_set_port(tcp_sockaddr_t *address, uint16_t port)
{
    if (address->any.sa_family == AF_INET6)
        address->v6.sin6_port = htons(port);
    else
        address->v4.sin_port = htons(port);
}

socklen_t tcp_address_len(const tcp_sockaddr_t *address)
{
    return address->any.sa_family == AF_INET6 ? sizeof(address->v6)
                                              : sizeof(address->v4);
}

static bool tcp_address_is_loopback(const tcp_sockaddr_t *address)
{
    if (address->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
    return ntohl(address->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

void tcp_address_print(const tcp_sockaddr_t *address, char *text, size_t room)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    bool v6 = address->any.sa_family == AF_INET6;

    if (v6)
        inet_ntop(AF_INET6, &address->v6.sin6_addr, ip, sizeof(ip));
    else
        inet_ntop(AF_INET, &address->v4.sin_addr, ip, sizeof(ip));
    if (tcp_address_port(address) == 0)
        snprintf(text, room, "%s", ip);
    else
        snprintf(text, room, v6 ? "[%s]:%u" : "%s:%u", ip,
                 tcp_address_port(address));
}

bool tcp_address_bind(const tcp_iface_t *iface, int fd, sa_family_t family)
{
    const int on = 1;

    errno = EADDRNOTAVAIL;
    for (unsigned i = 0; i < iface->n_addresses; i++) {
        tcp_sockaddr_t from = iface->addresses[i];

        if (from.any.sa_family != family)
            continue;
        /* the kernel chooses the port in connect(); the port must be unique
         * only together with the peer's address */
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
        tcp_address_set_port(&from, 0);
        return bind(fd, &from.any, tcp_address_len(&from)) == 0;
    }
    return false;
}

/* Replaces an IPv4-mapped IPv6 address by the IPv4 address. */
static void tcp_address_unmap(tcp_sockaddr_t *address)
{
    tcp_sockaddr_t plain = {.v4.sin_family = AF_INET};

    if (address->any.sa_family != AF_INET6 ||
        !IN6_IS_ADDR_V4MAPPED(&address->v6.sin6_addr))
        return;
    plain.v4.sin_port = address->v6.sin6_port;
    memcpy(&plain.v4.sin_addr, address->v6.sin6_addr.s6_addr + 12, 4);
    *address = plain;
}

static bool tcp_address_equal(const tcp_sockaddr_t *one,
                              const tcp_sockaddr_t *other)
{
    if (one->any.sa_family != other->any.sa_family)
        return false;
    if (one->any.sa_family == AF_INET6)
        return memcmp(&one->v6.sin6_addr, &other->v6.sin6_addr, 16) == 0;
    return one->v4.sin_addr.s_addr == other->v4.sin_addr.s_addr;
}

bool tcp_address_ours(const tcp_iface_t *iface, int fd)
{
    tcp_sockaddr_t here = {0};
    socklen_t len = sizeof(here);

    getsockname(fd, &here.any, &len);
    tcp_address_unmap(&here);
    for (unsigned i = 0; i < iface->n_addresses; i++) {
        if (tcp_address_equal(&here, &iface->addresses[i]))
            return true;
    }
    return false;
}

/* ---- as bytes ---- */

static size_t tcp_address_put(uint8_t *p, const tcp_sockaddr_t *address)
{
    bool v6 = address->any.sa_family == AF_INET6;
    uint16_t port = htole16(tcp_address_port(address));

    p[0] = v6 ? 6 : 4;
    p[1] = 0;
    memcpy(p + 2, &port, sizeof(port));
    if (v6)
        memcpy(p + 4, &address->v6.sin6_addr, 16);
    else
        memcpy(p + 4, &address->v4.sin_addr, 4);
    return v6 ? 20 : 8;
}

psc_status_t tcp_address_pack(const tcp_ep_t *ep, uint8_t *bytes, size_t *len_p)
{
    const tcp_iface_t *iface = (const tcp_iface_t *)ep->super.iface;
    uint8_t all[TCP_ADDRESS_HEAD + 20 * TCP_ADDRESSES_MAX] = {0};
    size_t len = TCP_ADDRESS_HEAD;

    all[0] = TCP_ADDRESS_VERSION;
    all[1] = (uint8_t)iface->n_addresses;
    tcp_wire_store64(all + 8, iface->host_id);
    tcp_wire_store64(all + 16, ep->id);
    for (unsigned i = 0; i < iface->n_addresses; i++)
        len += tcp_address_put(all + len, &iface->addresses[i]);
    if (*len_p < len)
        return PSC_ERR_INVALID;
    memcpy(bytes, all, len);
    *len_p = len;
    return PSC_OK;
}

/* Reads one socket address from the bytes of an endpoint address (wire.h).
 * Returns the number of bytes read, or 0 if they are not valid. */
static size_t tcp_address_get(const uint8_t *p, size_t len,
                              tcp_sockaddr_t *address_p)
{
    uint16_t port;
    size_t need;

    if (len < 4 || (p[0] != 4 && p[0] != 6))
        return 0;
    need = p[0] == 6 ? 20 : 8;
    if (len < need)
        return 0;
    memset(address_p, 0, sizeof(*address_p));
    address_p->any.sa_family = p[0] == 6 ? AF_INET6 : AF_INET;
    if (p[0] == 6)
        memcpy(&address_p->v6.sin6_addr, p + 4, 16);
    else
        memcpy(&address_p->v4.sin_addr, p + 4, 4);
    memcpy(&port, p + 2, sizeof(port));
    tcp_address_set_port(address_p, le16toh(port));
    return need;
}

psc_status_t tcp_address_unpack(tcp_ep_t *ep, const uint8_t *bytes, size_t len)
{
    const tcp_iface_t *iface = (const tcp_iface_t *)ep->super.iface;
    size_t at = TCP_ADDRESS_HEAD;

    if (len < TCP_ADDRESS_HEAD || bytes[0] != TCP_ADDRESS_VERSION ||
        bytes[1] > TCP_ADDRESSES_MAX)
        return PSC_ERR_PROTOCOL;
    ep->same_host = tcp_wire_load64(bytes + 8) == iface->host_id;
    ep->peer_id = tcp_wire_load64(bytes + 16);
    ep->n_candidates = 0;
    for (unsigned i = 0; i < bytes[1]; i++) {
        tcp_sockaddr_t *candidate = &ep->candidates[ep->n_candidates];
        size_t used = tcp_address_get(bytes + at, len - at, candidate);

        if (used == 0)
            return PSC_ERR_PROTOCOL;
        at += used;
        /* A loopback address of a peer on another host is left out, because it
         * would lead to this host. */
        ep->n_candidates +=
            ep->same_host || !tcp_address_is_loopback(candidate);
    }
    return at == len ? PSC_OK : PSC_ERR_PROTOCOL;
}
