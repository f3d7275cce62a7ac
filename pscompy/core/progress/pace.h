/* How often each interface is polled. */
#pragma once

#include "../types/interfaces.h"

/* Decide how often each interface is polled, and how many passes are made
 * between two clock reads. Called after a lane was added or removed. */
void psc_interfaces_pace(psc_interfaces_t *interfaces, int64_t spin_ns);
