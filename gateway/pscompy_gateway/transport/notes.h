/* Applies the notes of the Python half. */
#pragma once

#include "agent.h"

void gw_notes_apply(gw_agent_t *agent);
