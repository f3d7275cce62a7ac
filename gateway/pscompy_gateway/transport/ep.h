/* Endpoints: their table, connecting, failing. */
#pragma once

#include "agent.h"

gw_ep_t *gw_ep_find(gw_agent_t *agent, uint64_t id);
/* Removes the endpoint from the agent's table. */
void gw_ep_remove(gw_ep_t *ep);
/* Fails the endpoint. Called from progress only. */
void gw_ep_fail(gw_ep_t *ep, psc_status_t status, const char *reason);
/* Sends the connector's hello, if it is due. */
void gw_ep_greet(gw_ep_t *ep);
/* Processes a message of the token proof. Called from progress only. */
void gw_ep_take_proof(gw_ep_t *ep, unsigned kind, const uint8_t *body,
                      size_t len);
