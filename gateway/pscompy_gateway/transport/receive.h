/* The receiving half of an endpoint. */
#pragma once

#include "agent.h"

/* Processes a packet that the session below has received. */
void gw_in_take(gw_agent_t *agent, psc_message_t *message);
/* Delivers the messages in packets that are next in order. */
void gw_in_deliver(gw_ep_t *ep);
void gw_in_forget(gw_ep_t *ep);
/* Sends the acknowledgements that are due. */
void gw_in_answer(gw_agent_t *agent);
