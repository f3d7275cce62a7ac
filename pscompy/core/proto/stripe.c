#include "stripe.h"

static double stripe_cost(const psc_lane_t *lane, size_t len)
{
    double bandwidth = lane->slot->attr.bandwidth;

    return bandwidth > 0 ? (double)len / bandwidth : 0;
}

/* busy_until is virtual time: only differences between lanes matter. This gives
 * a split proportional to bandwidth for pieces of any size (equal fragments
 * would leave a third lane idle; D4.3, figure "3 rails = 2 rails"). */
psc_lane_t *psc_stripe_next(psc_conn_t *conn, uint32_t n_lanes, size_t len)
{
    psc_lane_t *best = conn->lanes[0];

    for (uint32_t i = 1; i < n_lanes; i++) {
        psc_lane_t *lane = conn->lanes[i];

        if (lane->busy_until + stripe_cost(lane, len) <
            best->busy_until + stripe_cost(best, len))
            best = lane;
    }
    return best;
}

void psc_stripe_charge(psc_lane_t *lane, size_t len)
{
    lane->busy_until += stripe_cost(lane, len);
}
