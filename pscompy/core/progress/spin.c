/* Spinning that shares the processor. Every few microseconds the spinning
 * thread reads the clock and yields the processor to other threads
 * (sched_yield): if there are more pollers than processors, the thread that
 * must answer us may be waiting for this processor. A yield after which
 * another thread runs (a taken yield) shows that the processor is crowded. Then
 * every pass yields, the holder of the GIL does not spin for a request,
 * and after SPIN_TURNS taken yields the thread sleeps, because sleeping and
 * being woken is cheaper for all.
 *
 * A blocking receive polls with the GIL held, without yielding, before it
 * returns a request. It polls longer if the last such poll of the worker has
 * found its message: then the peer's thread runs on another processor, and each
 * of the two threads keeps its GIL and processor until Python takes the GIL
 * away. */
#include "progress.h"

#include <sched.h>

#include "pscompy/transport/kit/clock.h"

/* sched_yield returns within this time, about 1 us, if no other thread takes
 * the processor. */
#define SPIN_ALONE_CYCLES 3000u

/* If all calls of sched_yield together took less than this, no threads but
 * pollers like this one have run during them. */
#define SPIN_UNSEEN_CYCLES 100000u

/* sched_yield may return at once although other threads wait. Only this many
 * such returns in a row mean that the processor is not crowded. */
#define SPIN_CROWDED 16u
/* A sleep and its wake-up cost about as much as this many calls of sched_yield
 * in which another thread runs. */
#define SPIN_TURNS 8u
/* A thread that holds the GIL polls for this many strides
 * (psc_interfaces_t.stride) at most, about 12 us, before it releases the GIL.
 * Handing the GIL to another thread and getting it back takes about as long. */
#define SPIN_HELD 6u

static unsigned spin_passes(psc_worker_t *worker)
{
    return atomic_load_explicit(&worker->wait.crowded, memory_order_relaxed)
               ? 1
               : atomic_load_explicit(&worker->interfaces.stride,
                                      memory_order_relaxed);
}

unsigned psc_spin_limit(psc_worker_t *worker, unsigned passes)
{
    unsigned limit =
        atomic_load_explicit(&worker->interfaces.stride, memory_order_relaxed);

    if (worker->config.spin_ns == 0 ||
        atomic_load_explicit(&worker->wait.crowded, memory_order_relaxed))
        return 0;
    return passes < limit ? passes : limit;
}

bool psc_spin_held(psc_worker_t *worker, unsigned passes)
{
    unsigned stride =
        atomic_load_explicit(&worker->interfaces.stride, memory_order_relaxed);

    if (passes == stride)
        return !atomic_load_explicit(&worker->wait.vain, memory_order_relaxed);
    return passes < SPIN_HELD * stride;
}

void psc_spin_held_end(psc_worker_t *worker, unsigned passes, bool found)
{
    if (passes > 1)
        atomic_store_explicit(&worker->wait.vain, !found, memory_order_relaxed);
}

/* Offer the processor to other threads. Returns true if one took it. */
static bool spin_yield(psc_worker_t *worker, psc_spin_t *spin)
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

/* Longest time of a peer's copy for which a thread spins instead of
 * sleeping. */
#define SPIN_EXPECT_MAX_NS 1000000

void psc_spin_expect(psc_worker_t *worker, double ns)
{
    if (worker->config.spin_ns == 0)
        return;
    if (ns > SPIN_EXPECT_MAX_NS)
        ns = SPIN_EXPECT_MAX_NS;
    atomic_store_explicit(&worker->wait.moving, psc_clock_now() + (int64_t)ns,
                          memory_order_relaxed);
}

static int64_t spin_end(psc_worker_t *worker, int64_t now)
{
    int64_t moving =
        atomic_load_explicit(&worker->wait.moving, memory_order_relaxed);

    return (moving > now ? moving : now) + worker->config.spin_ns;
}

/* While pollers share the processor, the first calls of sched_yield are made
 * without reading the clock: the awaited event has usually happened after them,
 * and where the kernel does not export its clock (vDSO) each read is a system
 * call. */
static bool spin_in_time(psc_worker_t *worker, psc_spin_t *spin)
{
    int64_t now;

    if (spin->away < SPIN_UNSEEN_CYCLES && spin->deadline == INT64_MAX &&
        worker->config.spin_ns > 0 &&
        atomic_load_explicit(&worker->wait.crowded, memory_order_relaxed))
        return true;
    now = psc_clock_now();
    if (spin->until == 0) {
        spin->until = spin_end(worker, now);
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
    if (spin_yield(worker, spin) && ++spin->taken >= SPIN_TURNS)
        return false;
    spin->passes = spin_passes(worker);
    return true;
}
