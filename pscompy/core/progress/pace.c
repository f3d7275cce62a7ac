#include "progress.h"

/* An interface whose poll takes longer than PACE_CHEAP_NS, so probably a system
 * call, is polled only on every PACE_RARELY-th pass while a cheaper interface
 * also has lanes. */
#define PACE_CHEAP_NS 100
#define PACE_RARELY 16u

/* An interface whose poll takes longer than PACE_CHEAP_NS, and that has only
 * lanes without ordered messages (proto/replay.h), which carry pieces of long
 * messages, is polled on every PACE_FURTHER-th pass. After a poll that found
 * something, or after a lane was given a piece, it is polled on each of the
 * next PACE_LINGER passes. */
#define PACE_FURTHER 64u
#define PACE_LINGER 1024u

#define PACE_LOOK_NS 2000.0 /* time between two clock reads while spinning */
#define PACE_PASS_NS 30.0   /* cost of a pass without its interfaces */

static unsigned pace_stride(const psc_interfaces_t *interfaces, int64_t spin_ns)
{
    double ns = PACE_PASS_NS, look = PACE_LOOK_NS;

    if (look > (double)spin_ns)
        look = (double)spin_ns;
    psc_iface_for_each(slot, interfaces) {
        if (slot->lanes > 0)
            ns += slot->attr.poll_ns / slot->every;
    }
    return ns < look ? (unsigned)(look / ns) : 1;
}

static bool pace_dear(const psc_iface_slot_t *slot)
{
    return slot->attr.poll_ns > PACE_CHEAP_NS;
}

static bool pace_further(const psc_iface_slot_t *slot)
{
    return pace_dear(slot) && slot->further > 0 && slot->further == slot->lanes;
}

static unsigned pace_every(const psc_iface_slot_t *slot, bool cheap)
{
    if (pace_further(slot))
        return PACE_FURTHER;
    return cheap && pace_dear(slot) ? PACE_RARELY : 1;
}

void psc_interfaces_pace(psc_interfaces_t *interfaces, int64_t spin_ns)
{
    bool cheap = false;

    psc_iface_for_each(slot, interfaces)
        cheap |= slot->lanes > 0 && !pace_dear(slot);
    psc_iface_for_each(slot, interfaces) {
        slot->every = pace_every(slot, cheap);
        slot->linger = pace_further(slot) ? PACE_LINGER : 0;
    }
    atomic_store_explicit(&interfaces->stride, pace_stride(interfaces, spin_ns),
                          memory_order_relaxed);
}
