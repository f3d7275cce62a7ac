/* Sending frames. */
#pragma once

#include "tcp.h"

psc_status_t tcp_out_init(tcp_out_t *out, size_t buffer_size);
void tcp_out_free(tcp_out_t *out);
/* Called by progress: sends what the socket accepts, and completes finished
 * sends. */
void tcp_out_flush(tcp_ep_t *ep);
/* Sends the last frame. */
void tcp_out_goodbye(tcp_ep_t *ep);
/* Called by progress: completes all sends in flight with an error. */
void tcp_out_cancel(tcp_ep_t *ep, psc_status_t status);
/* Called before the socket is closed: no more bytes are sent. */
void tcp_out_finish(tcp_ep_t *ep);
