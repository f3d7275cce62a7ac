/* Lanes with a measured rate, for the cases of fragments.c and stripes.c. */
#pragma once

#include "harness.h"
#include "pscompy/proto/stripe.h"

static inline void measured_as(psc_lane_t *lane, double bytes_per_ns)
{
    lane->stripe.bytes = bytes_per_ns * 1000;
    lane->stripe.ns = 1000;
}
