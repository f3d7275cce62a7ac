/* The progress thread: drives a worker without Python and the GIL while the
 * program does not call the library. Optional.
 *
 * The thread never competes with the program. While other threads poll, it
 * rests and checks now and then whether they still do. While the holder of the
 * poller's role sleeps on the fabrics, the thread stands by until the role is
 * free. Otherwise it is a sleeper itself (sleep.h), rung when another thread
 * polls or takes the role. */
#include "thread.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../descriptor.h"
#include "../worker.h"
#include "progress.h"
#include "sleep.h"

/* If no thread has polled for this long, assume the program is computing. */
#define THREAD_PATIENCE_NS 200000

struct psc_thread {
    pthread_t id;
    psc_sleeper_t sleeper;
    atomic_bool stopping;
};

static bool thread_stopping(psc_worker_t *worker)
{
    return atomic_load(&worker->thread->stopping);
}

/* ---- while other threads poll ---- */

/* Wait until the bell is rung, or for `patience` at most (NULL: no limit). */
static void thread_hear(psc_worker_t *worker, const struct timespec *patience)
{
    struct pollfd bell = {.fd = worker->thread->sleeper.bell, .events = POLLIN};

    ppoll(&bell, 1, patience, NULL);
}

static uint32_t thread_passes(psc_worker_t *worker)
{
    uint32_t passes;

    psc_lock_acquire(&worker->lock);
    passes = worker->pass;
    psc_worker_leave(worker);
    return passes;
}

/* Arm the bell for the moment at which the poller's role becomes free. Returns
 * false if the role's holder is not asleep or no thread holds the role. */
static bool thread_stand_by(psc_worker_t *worker)
{
    psc_sleeper_t *self = &worker->thread->sleeper;
    bool asleep;

    psc_lock_acquire(&worker->lock);
    psc_sleeper_disarm(self);
    asleep = worker->wait.poller.wants != 0;
    if (asleep) {
        self->wants = PSC_WAKE_FREE;
        atomic_fetch_or(&worker->wait.wanted, self->wants);
    }
    psc_worker_leave(worker);
    return asleep && atomic_load(&worker->wait.polling);
}

/* Wait until no thread has polled for THREAD_PATIENCE_NS. */
static void thread_rest(psc_worker_t *worker)
{
    static const struct timespec patience = {.tv_nsec = THREAD_PATIENCE_NS};
    uint32_t passes;
    bool stand_by;

    do {
        passes = thread_passes(worker);
        stand_by = thread_stand_by(worker);
        if (thread_stopping(worker))
            return;
        thread_hear(worker, stand_by ? NULL : &patience);
    } while (passes != thread_passes(worker) ||
             atomic_load(&worker->wait.polling));
}

/* ---- while no other thread polls ---- */

static unsigned thread_poll(psc_worker_t *worker, psc_ifaces_t ifaces)
{
    unsigned n;

    psc_lock_acquire(&worker->lock);
    psc_sleeper_disarm(&worker->thread->sleeper);
    n = psc_worker_progress_locked(worker, ifaces);
    psc_worker_leave(worker);
    return n;
}

static psc_status_t thread_arm(psc_worker_t *worker)
{
    psc_status_t status;

    psc_lock_acquire(&worker->lock);
    status = psc_sleeper_try(&worker->thread->sleeper,
                             PSC_WAKE_SPENT | PSC_WAKE_POLLED | PSC_WAKE_TAKEN);
    if (status != PSC_OK)
        psc_settle(worker);
    psc_worker_leave(worker);
    return status;
}

static bool thread_needed(psc_worker_t *worker)
{
    return !atomic_load(&worker->wait.polling) && !thread_stopping(worker);
}

/* Sleep until a fabric is readable. Returns false if the bell was rung or
 * another thread polls. */
static bool thread_doze(psc_worker_t *worker, psc_ifaces_t *ready_p)
{
    struct epoll_event events[PSC_IFACES_MAX + 1];
    int n = 0;

    *ready_p = PSC_PASS_ALL;
    if (thread_arm(worker) != PSC_OK)
        return thread_needed(worker);
    if (thread_needed(worker))
        n = epoll_wait(worker->thread->sleeper.set, events, PSC_IFACES_MAX + 1,
                       -1);
    ready_p->bits = 0;
    for (int i = 0; i < n; i++)
        ready_p->bits |= events[i].data.u32;
    return ready_p->bits && thread_needed(worker);
}

/* Sleep on the fabrics and poll them. Stops when another thread polls, or when
 * a pass finds nothing although the fabrics could not be armed. */
static void thread_drive(psc_worker_t *worker)
{
    psc_ifaces_t ready;

    while (thread_doze(worker, &ready)) {
        if (thread_poll(worker, ready) == 0 && ready.bits == PSC_PASS_ALL.bits)
            return;
    }
}

static void *thread_run(void *arg)
{
    psc_worker_t *worker = arg;

    while (!thread_stopping(worker)) {
        thread_drive(worker);
        thread_rest(worker);
    }
    return NULL;
}

/* ---- life ---- */

static void thread_free(psc_worker_t *worker, psc_thread_t *thread)
{
    psc_lock_acquire(&worker->lock);
    psc_sleeper_disarm(&thread->sleeper);
    psc_sleeper_close(&thread->sleeper);
    psc_worker_leave(worker);
    worker->thread = NULL;
    free(thread);
}

/* Create the thread with all signals blocked: signals go to the program's own
 * threads. */
static int thread_create(psc_worker_t *worker, psc_thread_t *thread)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread->id, NULL, thread_run, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int thread_open(psc_worker_t *worker, psc_thread_t *thread)
{
    int result;

    psc_lock_acquire(&worker->lock);
    result = psc_sleeper_open(&thread->sleeper, worker);
    psc_worker_leave(worker);
    return result;
}

int psc_worker_thread_start(psc_worker_t *worker)
{
    psc_thread_t *thread = calloc(1, sizeof *thread);

    if (!thread)
        return PSC_ERR_NO_MEMORY;
    worker->thread = thread;
    if (thread_open(worker, thread) == 0 &&
        thread_create(worker, thread) == 0) {
        pthread_setname_np(thread->id, "pscompy poll");
        return PSC_OK;
    }
    thread_free(worker, thread);
    return PSC_ERR_NO_MEMORY;
}

/* The bell stays rung, so that the thread cannot sleep again before it
 * exits. */
void psc_thread_stop(psc_worker_t *worker)
{
    psc_thread_t *thread = worker->thread;

    if (!thread || atomic_load(&worker->forked))
        return;
    atomic_store(&thread->stopping, true);
    psc_lock_acquire(&worker->lock);
    thread->sleeper.rung = true;
    psc_descriptor_signal(thread->sleeper.bell);
    psc_worker_leave(worker);
    pthread_join(thread->id, NULL);
    thread_free(worker, thread);
}
