#include "pace.h"

/* An interface whose poll takes longer than PACE_CHEAP_NS, so probably a system
 * call, is polled only on every PACE_RARELY-th pass while a cheaper interface
 * also has lanes. */
#define PACE_CHEAP_NS 100
#define PACE_RARELY 16u

/* So is one on every PACE_RAIL-th pass whose transport has lanes on an earlier
 * interface, because further rails mostly carry long messages only. */
#define PACE_RAIL 4u

#define PACE_LOOK_NS 2000.0 /* between two clock reads while spinning */
#define PACE_PASS_NS 30.0   /* cost of a pass without its interfaces */

static unsigned pace_stride(const psc_interfaces_t *interfaces, int64_t spin_ns)
{
    double ns = PACE_PASS_NS, look = PACE_LOOK_NS;

    if (look > (double)spin_ns)
        look = (double)spin_ns;
    for (uint32_t i = 0; i < interfaces->n; i++) {
        const psc_iface_slot_t *slot = &interfaces->slots[i];

        if (slot->lanes > 0)
            ns += slot->attr.poll_ns / slot->every;
    }
    return ns < look ? (unsigned)(look / ns) : 1;
}

static bool pace_further_rail(const psc_interfaces_t *interfaces,
                              const psc_iface_slot_t *slot)
{
    const psc_iface_slot_t *earlier = interfaces->slots;

    while (earlier < slot && (earlier->lanes == 0 || earlier->ops != slot->ops))
        earlier++;
    return slot->ops && earlier < slot;
}

static unsigned pace_every(const psc_interfaces_t *interfaces,
                           const psc_iface_slot_t *slot, bool cheap)
{
    if (slot->attr.poll_ns <= PACE_CHEAP_NS)
        return 1;
    if (cheap)
        return PACE_RARELY;
    return pace_further_rail(interfaces, slot) ? PACE_RAIL : 1;
}

void psc_interfaces_pace(psc_interfaces_t *interfaces, int64_t spin_ns)
{
    bool cheap = false;

    psc_iface_for_each(slot, interfaces)
        cheap |= slot->lanes > 0 && slot->attr.poll_ns <= PACE_CHEAP_NS;
    psc_iface_for_each(slot, interfaces)
        slot->every = pace_every(interfaces, slot, cheap);
    atomic_store_explicit(&interfaces->stride, pace_stride(interfaces, spin_ns),
                          memory_order_relaxed);
}
