/* The receiving half of an endpoint. */
#ifndef GATEWAY_RECEIVE_H
#define GATEWAY_RECEIVE_H

#include "agent.h"

/* Takes a message of the session below. */
void gw_in_take(gw_agent_t *agent, psc_message_t *message);
/* Hands packets upwards whose turn has come. */
void gw_in_deliver(gw_ep_t *ep);
void gw_in_forget(gw_ep_t *ep);
/* Sends the acknowledgements that are due. */
void gw_in_answer(gw_agent_t *agent);

#endif
