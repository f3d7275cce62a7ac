#include "pace.h"

/* An interface whose poll takes longer than PACE_CHEAP_NS, so probably a system
 * call, is polled only on every PACE_RARELY-th pass while a cheaper interface
 * also has lanes. */
#define PACE_CHEAP_NS 100
#define PACE_RARELY 16u

#define PACE_LOOK_NS 2000.0 /* between two clock reads while spinning */
#define PACE_PASS_NS 30.0   /* cost of a pass without its interfaces */

static void pace_stride(psc_worker_t *worker)
{
    double ns = PACE_PASS_NS, look = PACE_LOOK_NS;

    if (look > (double)worker->config.spin_ns)
        look = (double)worker->config.spin_ns;
    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        if (slot->lanes > 0)
            ns += slot->attr.poll_ns / slot->every;
    }
    atomic_store_explicit(&worker->stride,
                          ns < look ? (unsigned)(look / ns) : 1,
                          memory_order_relaxed);
}

void psc_worker_pace(psc_worker_t *worker)
{
    bool cheap = false;

    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        cheap |= slot->lanes > 0 && slot->attr.poll_ns <= PACE_CHEAP_NS;
    }
    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        slot->every =
            cheap && slot->attr.poll_ns > PACE_CHEAP_NS ? PACE_RARELY : 1;
    }
    pace_stride(worker);
}
