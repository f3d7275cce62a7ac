/* The addresses of this host that are sent to peers. */
#pragma once

#include "tcp.h"

/* Fills `addresses` (with port 0) and `host_id`. */
psc_status_t tcp_address_choose(tcp_iface_t *iface, char *reason);
