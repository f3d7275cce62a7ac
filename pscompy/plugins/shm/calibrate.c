/* Calibration: how fast this process copies through a record of a ring and how
 * fast it copies by cross-memory attach, measured when the process opens its
 * first interface, in less than 100 us. One core makes all copies, so the time
 * that cache lines take to another core is added (SHM_NEAR_NS_PER_BYTE). */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "memory.h"
#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/kit/restart.h"

#define SHM_TRIAL_LONG (32u << 10)
#define SHM_TRIAL_SHORT (8u << 10)
#define SHM_TRIAL_ROUNDS 16
/* Least number of rounds of measurement. One is too few, because the first
 * cross-memory attach of a process takes four times as long as later ones. */
#define SHM_TRIAL_LEAST 4
/* nanoseconds after which no further round of measurement begins, if the
 * measured times are plausible */
#define SHM_TRIAL_NS 50000
/* Nanoseconds that each byte of a stream of cache lines takes to a near
 * core. */
#define SHM_NEAR_NS_PER_BYTE 0.1

typedef struct shm_trial {
    uint8_t from[SHM_TRIAL_LONG], to[SHM_TRIAL_LONG], record[SHM_PIECE];
} shm_trial_t;

/* The shortest times of all rounds, in ns, because an interruption lengthens
 * single rounds. */
typedef struct shm_times {
    /* two copies of SHM_TRIAL_LONG bytes: into a record and out of it */
    int64_t copies;
    int64_t long_attach, short_attach;
} shm_times_t;

static void shm_trial_copy(shm_trial_t *trial)
{
    for (size_t at = 0; at < SHM_TRIAL_LONG; at += SHM_PIECE) {
        shm_ring_copy(trial->record, trial->from + at, SHM_PIECE);
        shm_ring_copy(trial->to + at, trial->record, SHM_PIECE);
    }
}

static bool shm_trial_attach(shm_trial_t *trial, size_t len)
{
    struct iovec to = {trial->to, len}, from = {trial->from, len};

    return PSC_RESTART(process_vm_readv(getpid(), &to, 1, &from, 1, 0)) ==
           (ssize_t)len;
}

/* Lowers *best_p to the time since *since_p, if that is shorter. Then sets
 * *since_p to now. */
static void shm_times_note(int64_t *best_p, int64_t *since_p)
{
    int64_t now = psc_clock_now();

    if (now - *since_p < *best_p)
        *best_p = now - *since_p;
    *since_p = now;
}

static bool shm_trial_round(shm_trial_t *trial, bool cma, shm_times_t *times)
{
    int64_t now = psc_clock_now();

    shm_trial_copy(trial);
    shm_times_note(&times->copies, &now);
    if (!cma)
        return true;
    if (!shm_trial_attach(trial, SHM_TRIAL_LONG))
        return false;
    shm_times_note(&times->long_attach, &now);
    if (!shm_trial_attach(trial, SHM_TRIAL_SHORT))
        return false;
    shm_times_note(&times->short_attach, &now);
    return true;
}

/* Computes the rates from the times. Returns false if interruptions have made
 * the times absurd. */
static bool shm_rates_set(shm_rates_t *rates, const shm_times_t *times,
                          bool cma)
{
    double copy = (double)times->copies / 2 / SHM_TRIAL_LONG;
    double attach = (double)(times->long_attach - times->short_attach) /
                    (SHM_TRIAL_LONG - SHM_TRIAL_SHORT);
    double start = (double)times->short_attach - attach * SHM_TRIAL_SHORT;

    if (cma && (attach <= 0 || start <= 0))
        return false;
    rates->copy = 1e9 / (copy + SHM_NEAR_NS_PER_BYTE);
    if (cma) {
        rates->attach = 1e9 / attach;
        rates->attach_ns = start;
    }
    return true;
}

/* Measures the rates, or returns default values if the measurement fails. */
static shm_rates_t shm_rates_measure(bool cma)
{
    shm_rates_t rates = {8e9, 14e9, 1500, false};
    shm_times_t times = {INT64_MAX, INT64_MAX, INT64_MAX};
    shm_trial_t *trial = malloc(sizeof *trial);
    int64_t until = psc_clock_now() + SHM_TRIAL_NS;
    bool done = false;

    if (trial == NULL)
        return rates;
    /* touch the pages, so that no page fault is measured */
    memset(trial, 1, sizeof *trial);
    for (int i = 0; i < SHM_TRIAL_ROUNDS && !done; i++) {
        if (!shm_trial_round(trial, cma, &times))
            break;
        rates.measured = shm_rates_set(&rates, &times, cma);
        done = rates.measured && i + 1 >= SHM_TRIAL_LEAST &&
               psc_clock_now() >= until;
    }
    free(trial);
    return rates;
}

enum { SHM_UNKNOWN, SHM_WRITTEN, SHM_KNOWN };

/* The rates that the first interface of this process has measured. `rates` may
 * be read once `state` is SHM_KNOWN. */
typedef struct shm_measured {
    _Atomic int state;
    shm_rates_t rates;
} shm_measured_t;

void shm_iface_calibrate(shm_iface_t *iface)
{
    static shm_measured_t with_cma, without_cma;
    bool cma = iface->cma != SHM_CMA_OFF;
    shm_measured_t *known = cma ? &with_cma : &without_cma;
    int unknown = SHM_UNKNOWN;

    if (atomic_load_explicit(&known->state, memory_order_acquire) ==
        SHM_KNOWN) {
        iface->rates = known->rates;
        return;
    }
    iface->rates = shm_rates_measure(cma);
    if (iface->rates.measured &&
        atomic_compare_exchange_strong_explicit(
            &known->state, &unknown, SHM_WRITTEN, memory_order_relaxed,
            memory_order_relaxed)) {
        known->rates = iface->rates;
        atomic_store_explicit(&known->state, SHM_KNOWN, memory_order_release);
    }
}
