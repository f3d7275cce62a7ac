/* Checks for packets and peers that were lost; see probe.c. */
#pragma once

#include "agent.h"

void gw_probe_tick(gw_ep_t *ep);
