/* The end of an endpoint. */
#pragma once

#include "agent.h"

void gw_ep_close(psc_ep_t *ep);
psc_status_t gw_ep_stop(psc_ep_t *ep);
void gw_ep_fini(psc_ep_t *ep);
/* Frees endpoints that ended while progress used them. */
void gw_ep_free_dead(gw_agent_t *agent);
