/* Chooses the way of a packet. */
#ifndef GATEWAY_PATHS_H
#define GATEWAY_PATHS_H

#include "agent.h"

/* The path for the next packet, or NULL if there is none. */
gw_path_t *gw_path_choose(gw_ep_t *ep, size_t len);
/* The paths that may lead to the peer, as a bit mask. */
uint32_t gw_path_usable(const gw_ep_t *ep);
/* The endpoint has no home any more; the next packet chooses one. */
void gw_path_leave(gw_ep_t *ep);
void gw_path_names(const gw_agent_t *agent, char *text, size_t room);
/* Tells the session above whether it has to make progress although the program
 * does not call, because packets wait to be sent. */
void gw_path_settle(gw_ep_t *ep);

#endif
