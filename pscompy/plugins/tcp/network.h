/* The addresses of this host that peers are told. */
#ifndef PSCOMPY_TCP_NETWORK_H
#define PSCOMPY_TCP_NETWORK_H

#include "tcp.h"

/* Fills addresses (ports 0) and host_id. */
psc_status_t tcp_address_choose(tcp_iface_t *iface, char *reason);

#endif
