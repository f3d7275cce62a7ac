/* The progress thread: makes background progress for a program that does not
 * call the library (progress.h), without Python and the GIL. Optional. */
#include "progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "../worker.h"

struct psc_thread {
    pthread_t id;
    psc_sleeper_t sleeper;
    int64_t patience_ns;
    atomic_bool stopping;
};

static bool thread_stopping(psc_background_t *self)
{
    return atomic_load(&self->sleeper->worker->thread->stopping);
}

static void *thread_run(void *arg)
{
    psc_worker_t *worker = arg;
    psc_background_t self = {.sleeper = &worker->thread->sleeper,
                             .wants = PSC_WAKE_SPENT | PSC_WAKE_POLLED |
                                      PSC_WAKE_TAKEN,
                             .patience_ns = worker->thread->patience_ns,
                             .deadline = INT64_MAX,
                             .ended = thread_stopping};

    psc_background(&self);
    return NULL;
}

/* ---- creation and end ---- */

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

int psc_worker_thread_start(psc_worker_t *worker, int64_t patience_ns)
{
    psc_thread_t *thread;

    if (worker->thread)
        return PSC_ERR_INVALID;
    thread = calloc(1, sizeof *thread);
    if (!thread)
        return PSC_ERR_NO_MEMORY;
    thread->patience_ns = patience_ns;
    worker->thread = thread;
    if (thread_open(worker, thread) == 0 &&
        thread_create(worker, thread) == 0) {
        pthread_setname_np(thread->id, "pscompy poll");
        return PSC_OK;
    }
    thread_free(worker, thread);
    return PSC_ERR_NO_MEMORY;
}

/* The thread's doorbell (eventfd) stays readable, so that the thread cannot
 * sleep again before it exits. */
void psc_thread_stop(psc_worker_t *worker)
{
    psc_thread_t *thread = worker->thread;

    if (!thread || atomic_load(&worker->forked))
        return;
    atomic_store(&thread->stopping, true);
    psc_lock_acquire(&worker->lock);
    thread->sleeper.rung = true;
    psc_descriptor_signal(thread->sleeper.doorbell);
    psc_worker_leave(worker);
    pthread_join(thread->id, NULL);
    thread_free(worker, thread);
}
