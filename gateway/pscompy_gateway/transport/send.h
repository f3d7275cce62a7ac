/* The sending half of an endpoint. */
#pragma once

#include "agent.h"

/* Sends a numbered packet without a message. */
psc_status_t gw_out_control(gw_ep_t *ep, uint8_t flags, const void *data,
                            size_t len);
/* Processes an acknowledgement: packets with numbers below `ack` have arrived,
 * and those below `limit` may be sent. */
void gw_out_acknowledged(gw_ep_t *ep, uint32_t ack, uint32_t limit);
/* Sends the packets of the endpoint that wait to be sent. */
void gw_out_flush(gw_ep_t *ep);
/* Sends all unacknowledged packets again that were sent on these paths (a bit
 * mask). With `some`, only the packets that were sent before `clock`. */
void gw_out_again(gw_ep_t *ep, uint32_t paths, bool some, uint32_t clock);
/* Drops all packets that are not acknowledged; their ops fail with
 * PEER_LOST. */
void gw_out_abandon(gw_ep_t *ep);
