/* The one door between the stages of an endpoint, and what a stage watches. */
#ifndef PSCOMPY_TCP_STAGE_H
#define PSCOMPY_TCP_STAGE_H

#include "tcp.h"

const char *tcp_stage_name(tcp_stage_t stage);
void tcp_ep_enter(tcp_ep_t *ep, tcp_stage_t stage);
/* From anywhere: record why; ep_failed follows from progress. */
void tcp_ep_break(tcp_ep_t *ep, psc_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Watch what the stage and the out-queue need, or break. */
void tcp_ep_watch(tcp_ep_t *ep);
/* This endpoint has received; or (NULL) there is no hot one any more. */
void tcp_hot_set(tcp_iface_t *iface, tcp_ep_t *ep);
/* The hot one's socket goes back into the epoll set. */
void tcp_hot_put_back(tcp_iface_t *iface);

#endif
