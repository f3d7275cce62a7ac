#include "pace.h"

/* An interface that costs a system call to poll is polled now and then while a
 * cheaper one has lanes too. */
#define PACE_CHEAP_NS 100
#define PACE_RARELY 16u

#define PACE_LOOK_NS 2000.0 /* between two looks at the clock */
#define PACE_PASS_NS 30.0   /* of a pass, beside the interfaces */

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
