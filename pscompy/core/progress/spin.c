/* Spinning with consideration. The clock is looked at every few microseconds,
 * and with each look the processor is offered to others: where there are more
 * pollers than processors, the one that we wait for may be waiting for ours.
 * An offer that somebody takes says that it is so: then each pass offers, the
 * GIL's holder does not spin, and after a few turns of others it is cheaper
 * for all to sleep and be woken. */
#include "spin.h"

#include <sched.h>

#include "pscompy/transport/kit/clock.h"

/* An offer that nobody takes is over sooner: in 1 us or so. */
#define SPIN_ALONE_CYCLES 3000u

/* Others that took no longer than this, in all, were pollers as we are. */
#define SPIN_UNSEEN_CYCLES 100000u

/* The scheduler may refuse an offer although others wait: only so many
 * refusals in a row say that we are alone. */
#define SPIN_CROWDED 16u
/* A sleep costs both sides about as much as so many turns of others. */
#define SPIN_TURNS 8u

static unsigned spin_passes(psc_worker_t *worker)
{
    return atomic_load_explicit(&worker->wait.crowded, memory_order_relaxed)
               ? 1
               : atomic_load_explicit(&worker->stride, memory_order_relaxed);
}

unsigned psc_spin_limit(psc_worker_t *worker, unsigned passes)
{
    unsigned limit =
        atomic_load_explicit(&worker->stride, memory_order_relaxed);

    if (worker->config.spin_ns == 0 ||
        atomic_load_explicit(&worker->wait.crowded, memory_order_relaxed))
        return 0;
    return passes < limit ? passes : limit;
}

/* Let others run, and learn whether there are any. */
static bool spin_offer(psc_worker_t *worker, psc_spin_t *spin)
{
    uint64_t before = psc_clock_cycles(), cycles;
    unsigned crowded =
        atomic_load_explicit(&worker->wait.crowded, memory_order_relaxed);
    bool taken;

    sched_yield();
    cycles = psc_clock_cycles() - before;
    spin->away += cycles;
    taken = cycles > SPIN_ALONE_CYCLES;
    if (taken)
        crowded = SPIN_CROWDED;
    else if (crowded > 0)
        crowded--;
    atomic_store_explicit(&worker->wait.crowded, crowded, memory_order_relaxed);
    return taken;
}

void psc_spin_begin(psc_worker_t *worker, psc_spin_t *spin, int64_t deadline)
{
    *spin = (psc_spin_t){.deadline = deadline, .passes = spin_passes(worker)};
}

/* The first offers in a crowd are made unseen: by their end there mostly is
 * what was waited for, and where the kernel does not share its clock a look is
 * a system call. */
static bool spin_in_time(psc_worker_t *worker, psc_spin_t *spin)
{
    int64_t now;

    if (spin->away < SPIN_UNSEEN_CYCLES && spin->deadline == INT64_MAX &&
        worker->config.spin_ns > 0 &&
        atomic_load_explicit(&worker->wait.crowded, memory_order_relaxed))
        return true;
    now = psc_clock_now();
    if (spin->until == 0) {
        spin->until = now + worker->config.spin_ns;
        if (spin->until > spin->deadline)
            spin->until = spin->deadline;
    }
    return now < spin->until;
}

bool psc_spin_on(psc_worker_t *worker, psc_spin_t *spin)
{
    psc_clock_pause();
    if (--spin->passes > 0)
        return true;
    if (!spin_in_time(worker, spin))
        return false;
    if (spin_offer(worker, spin) && ++spin->taken >= SPIN_TURNS)
        return false;
    spin->passes = spin_passes(worker);
    return true;
}
