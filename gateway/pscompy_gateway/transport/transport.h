/* The transport's table of operations, and the functions of the agent that
 * Python calls. */
#pragma once

#include "agent.h"

/* CDEF BEGIN */
uintptr_t pscompy_gateway_transport(void);
/* Creates an agent. api: address of the psc_api_t; worker: address of the
 * worker of the session to the gateways. */
gw_agent_t *gw_agent_create(uintptr_t api, uintptr_t worker, uint64_t node,
                            uint32_t module);
/* Destroys the agent. To be called after the transport was closed and all
 * connections to gateways have ended, while the worker still exists. */
void gw_agent_destroy(gw_agent_t *agent);
/* Returns the number of endpoints with packets that are not acknowledged. */
int gw_agent_unsettled(gw_agent_t *agent);
/* CDEF END */
