/* Checks for packets and peers that were lost; see probe.c. */
#ifndef GATEWAY_PROBE_H
#define GATEWAY_PROBE_H

#include "agent.h"

void gw_probe_tick(gw_ep_t *ep);

#endif
