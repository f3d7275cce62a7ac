/* The stages in which an endpoint connects. */
#pragma once

#include "tcp.h"

/* Called by progress when a caller's hello is complete. Takes ownership of
 * `fd`. */
void tcp_ep_take_call(tcp_iface_t *iface, int fd, const uint8_t *hello);
/* Called by progress: checks deadlines and reports failures. Returns the time
 * of the next check. */
int64_t tcp_connect_expire(tcp_iface_t *iface, int64_t now);
/* The handlers of an endpoint's sockets. */
void tcp_ep_ready(tcp_source_t *source, uint32_t events);
void tcp_ep_writable(tcp_source_t *source, uint32_t events);
