/* The listener, and callers that have not named an endpoint. */
#pragma once

#include "tcp.h"

psc_status_t tcp_listener_open(tcp_iface_t *iface, char *reason);
/* closes the listener and drops its callers */
void tcp_listener_close(tcp_iface_t *iface);
/* Drops callers whose time is over. Returns the time of the next check. */
int64_t tcp_listener_expire(tcp_iface_t *iface, int64_t now);
