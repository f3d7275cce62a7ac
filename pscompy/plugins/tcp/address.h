/* Socket addresses, and endpoint addresses as bytes. */
#pragma once

#include "tcp.h"

bool tcp_address_is_loopback(const tcp_sockaddr_t *address);
uint16_t tcp_address_port(const tcp_sockaddr_t *address);
void tcp_address_set_port(tcp_sockaddr_t *address, uint16_t port);
socklen_t tcp_address_len(const tcp_sockaddr_t *address);
void tcp_address_print(const tcp_sockaddr_t *address, char *text, size_t room);
psc_status_t tcp_address_pack(const tcp_ep_t *ep, uint8_t *bytes,
                              size_t *len_p);
/* Fills peer_id, same_host and candidates. Returns an error unless the bytes
 * are exactly an address. */
psc_status_t tcp_address_unpack(tcp_ep_t *ep, const uint8_t *bytes, size_t len);
