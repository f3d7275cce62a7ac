/* The lock of a worker, and its mail: work that other threads leave for the
 * lock's holder. */
#include "worker.h"

#include <string.h>

#include "progress/progress.h"
#include "pscompy/transport/kit/clock.h"
#include "upward.h"

/* ---- the lock ---- */

/* Wait for the lock, which another thread holds, and count the wait. */
static void worker_wait_for_lock(psc_worker_t *worker)
{
    uint64_t *values = worker->counters.value;
    int64_t begun = psc_clock_now();
    uint64_t waited;

    psc_lock_acquire(&worker->lock);
    waited = (uint64_t)(psc_clock_now() - begun);
    values[PSC_COUNTER_lock_waits]++;
    if (waited > values[PSC_COUNTER_lock_longest_ns])
        values[PSC_COUNTER_lock_longest_ns] = waited;
}

psc_status_t psc_worker_enter(psc_worker_t *worker, uint32_t flags)
{
    if (atomic_load_explicit(&worker->forked, memory_order_relaxed))
        return PSC_ERR_FORKED;
    if (psc_lock_try(&worker->lock))
        return PSC_OK;
    if (flags & PSC_FLAG_TRY)
        return PSC_ERR_NO_RESOURCE;
    worker_wait_for_lock(worker);
    return PSC_OK;
}

/* Returns PSC_WAKE_END if psc_worker_wake was called since this function was
 * last called. */
static uint32_t worker_wait_ends(psc_worker_t *worker)
{
    unsigned wakes = atomic_load(&worker->wait.wakes);
    bool ends = wakes != worker->wait.wakes_seen;

    worker->wait.wakes_seen = wakes;
    return ends ? PSC_WAKE_END : 0;
}

static void worker_read_mail(psc_worker_t *worker)
{
    worker->up->inbox_drain(worker);
    psc_sleepers_bury(worker);
    psc_wake(worker,
             PSC_WAKE_EVENT | PSC_WAKE_SPENT | worker_wait_ends(worker));
}

/* Do the work that other threads have queued because they could not take the
 * lock. Then release the lock, and wake the followers (threads that wait). */
static void worker_leave_slowly(psc_worker_t *worker)
{
    atomic_uint *woken[PSC_WOKEN_MAX];
    uint32_t n;
    unsigned mail;

    while ((mail = atomic_exchange(&worker->mail, 0)) & ~PSC_MAIL_WOKEN) {
        if (mail & PSC_MAIL_OUTSIDE)
            worker_read_mail(worker);
        if (mail & PSC_MAIL_RUNS)
            worker->runs.engine->advance(worker);
    }
    n = worker->wait.n_woken;
    worker->wait.n_woken = 0;
    memcpy(woken, worker->wait.woken, n * sizeof *woken);
    psc_lock_release(&worker->lock);
    while (n > 0)
        psc_futex_wake(woken[--n], 1);
}

/* Work that another thread queues just before the lock is released is done
 * here, too. */
void psc_worker_leave(psc_worker_t *worker)
{
    do {
        if (atomic_load(&worker->mail))
            worker_leave_slowly(worker);
        else
            psc_lock_release(&worker->lock);
    } while (atomic_load(&worker->mail) && psc_lock_try(&worker->lock));
}

void psc_worker_mail(psc_worker_t *worker)
{
    atomic_fetch_or(&worker->mail, PSC_MAIL_OUTSIDE);
    if (psc_lock_try(&worker->lock))
        psc_worker_leave(worker);
}

void psc_worker_wake(psc_worker_t *worker)
{
    if (atomic_load(&worker->forked))
        return;
    atomic_fetch_add(&worker->wait.wakes, 1);
    psc_worker_mail(worker);
}
