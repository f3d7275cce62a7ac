/* The end of an endpoint. */
#pragma once

#include "agent.h"

/* Frees endpoints that ended while progress used them. */
void gw_ep_free_dead(gw_agent_t *agent);
