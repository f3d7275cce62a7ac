/* Applies the notes of the Python half. */
#ifndef GATEWAY_NOTES_H
#define GATEWAY_NOTES_H

#include "agent.h"

void gw_notes_apply(gw_agent_t *agent);

#endif
