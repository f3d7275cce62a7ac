/* Endpoints: creating, entering the stage UP, failing, closing. */
#pragma once

#include "tcp.h"

void tcp_ep_free(tcp_ep_t *ep);
void tcp_dials_close(tcp_ep_t *ep);
void tcp_ep_name_peer(tcp_ep_t *ep);
/* Called by progress when the token is proved on the socket `rx`: the endpoint
 * enters UP. */
void tcp_ep_rise(tcp_ep_t *ep);
/* Called by progress: reports the failure with ep_failed. */
void tcp_ep_tell_failure(tcp_ep_t *ep);
/* Reads and discards bytes that arrive after our close. */
void tcp_ep_discard(tcp_ep_t *ep);
