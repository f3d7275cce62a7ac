/* Descriptors in the epoll set, and the alarm. */
#pragma once

#include "tcp.h"

psc_status_t tcp_source_watch(tcp_iface_t *iface, tcp_source_t *source,
                              uint32_t events);
void tcp_source_close(tcp_iface_t *iface, tcp_source_t *source);
/* Ensures that progress is called and deadlines are checked at `when` or
 * earlier. */
void tcp_iface_wake_at(tcp_iface_t *iface, int64_t when);
