/* Chooses the gateway that a packet is sent to. */
#pragma once

#include "agent.h"

/* The path for the next packet, or NULL if there is none. */
gw_path_t *gw_path_choose(gw_ep_t *ep, size_t len);
/* The paths that may lead to the peer, as a bit mask. */
uint32_t gw_path_usable(const gw_ep_t *ep);
/* Makes the endpoint leave its home path; the next packet chooses another. */
void gw_path_leave(gw_ep_t *ep);
void gw_path_names(const gw_agent_t *agent, char *text, size_t room);
/* Reports to the session above whether packets wait to be sent, so that some
 * thread must make progress even if the program makes no call. */
void gw_path_settle(gw_ep_t *ep);
