/* Changes of an endpoint's stage, and the events that each stage watches. */
#pragma once

#include "tcp.h"

const char *tcp_stage_name(tcp_stage_t stage);
void tcp_ep_enter(tcp_ep_t *ep, tcp_stage_t stage);
/* May be called at any time. Records the reason; progress then calls
 * ep_failed. */
void tcp_ep_break(tcp_ep_t *ep, psc_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Watches the events that the stage and the out-queue need. Breaks the endpoint
 * if epoll fails. */
void tcp_ep_watch(tcp_ep_t *ep);
/* Called after `ep` has received; NULL if there is no hot endpoint any more. */
void tcp_hot_set(tcp_iface_t *iface, tcp_ep_t *ep);
/* Puts the hot endpoint's socket back into the epoll set. */
void tcp_hot_put_back(tcp_iface_t *iface);
