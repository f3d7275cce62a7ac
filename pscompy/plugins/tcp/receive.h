/* Receiving frames. */
#pragma once

#include "tcp.h"

psc_status_t tcp_in_init(tcp_in_t *in);
void tcp_in_free(tcp_in_t *in);
/* Called by progress: one read, then delivery of all frames that it
 * completed. */
void tcp_stream_receive(tcp_ep_t *ep);
