/* The progress thread: drives a worker while the program stays away from it,
 * without Python and its lock. Optional; a worker without it pays one load
 * here and there.
 *
 * It never competes. While others poll it rests and looks now and then whether
 * they still do; while one of them sleeps with the poller's role, and so is
 * woken by the fabric, it stands by until the role is free. Else it sleeps on
 * the fabrics itself, in a set of its own: what it has armed is used up when
 * somebody polls, who nudges it therefore. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "parts/clock.h"
#include "worker.h"

/* Who has not polled for so long has gone to do something else. */
#define THREAD_PATIENCE_NS 200000

#define THREAD_NUDGED (1u << PSC_IFACES_MAX)

struct psc_thread {
    pthread_t id;
    int set;      /* the interfaces and nudge_fd */
    int nudge_fd; /* edge-triggered: nobody reads it */
};

/* ---- from other threads ---- */

static void thread_call(psc_worker_t *worker)
{
    atomic_fetch_add(&worker->wait.calls, 1);
    psc_futex_wake(&worker->wait.calls, 1);
}

void psc_thread_nudge(psc_worker_t *worker)
{
    if (atomic_load(&worker->wait.dozing) &&
        atomic_exchange(&worker->wait.dozing, 0))
        psc_worker_signal(worker->thread->nudge_fd);
}

void psc_thread_relieve(psc_worker_t *worker)
{
    if (atomic_load(&worker->wait.standby) &&
        atomic_exchange(&worker->wait.standby, 0))
        thread_call(worker);
}

/* ---- the thread itself ---- */

static bool thread_stopping(psc_worker_t *worker)
{
    return atomic_load(&worker->wait.stopping);
}

static uint32_t thread_passes(psc_worker_t *worker)
{
    uint32_t passes;

    psc_lock_acquire(&worker->lock);
    passes = worker->pass;
    psc_worker_leave(worker);
    return passes;
}

/* Somebody sleeps with the poller's role: until he gives it back. */
static void thread_stand_by(psc_worker_t *worker, uint32_t calls)
{
    atomic_store(&worker->wait.standby, 1);
    if (atomic_load(&worker->wait.polling) &&
        atomic_load(&worker->wait.sleeping) && !thread_stopping(worker))
        psc_futex_wait(&worker->wait.calls, calls, NULL);
    atomic_store(&worker->wait.standby, 0);
}

/* Until nobody has polled for a while. */
static void thread_rest(psc_worker_t *worker)
{
    static const struct timespec patience = {.tv_nsec = THREAD_PATIENCE_NS};
    uint32_t passes, calls;

    do {
        calls = atomic_load(&worker->wait.calls);
        if (thread_stopping(worker))
            return;
        passes = thread_passes(worker);
        psc_futex_wait(&worker->wait.calls, calls, &patience);
        thread_stand_by(worker, calls);
    } while (passes != thread_passes(worker) ||
             atomic_load(&worker->wait.polling));
}

static unsigned thread_poll(psc_worker_t *worker, uint32_t ifaces)
{
    unsigned n;

    psc_lock_acquire(&worker->lock);
    n = psc_worker_progress_locked(worker, ifaces);
    psc_worker_leave(worker);
    return n;
}

static psc_status_t thread_arm(psc_worker_t *worker)
{
    psc_status_t status;

    psc_lock_acquire(&worker->lock);
    status = psc_worker_arm_fabric_locked(worker);
    psc_worker_leave(worker);
    return status;
}

/* Until a fabric has something: its bit. 0: it was not the time to sleep. */
static uint32_t thread_doze(psc_worker_t *worker)
{
    struct epoll_event events[PSC_IFACES_MAX + 1];
    uint32_t ready = 0;
    int n = 0;

    atomic_store(&worker->wait.dozing, 1); /* before the look */
    if (thread_arm(worker) == PSC_OK && !atomic_load(&worker->wait.polling) &&
        !thread_stopping(worker))
        n = epoll_wait(worker->thread->set, events, PSC_IFACES_MAX + 1, -1);
    atomic_store(&worker->wait.dozing, 0);
    for (int i = 0; i < n; i++)
        ready |= events[i].data.u32;
    return ready;
}

/* Sleep on the fabrics and poll them, until somebody else polls, or one has
 * nothing although it does not let us sleep. */
static void thread_drive(psc_worker_t *worker)
{
    uint32_t ready;
    unsigned n;

    do {
        ready = thread_doze(worker);
        if (ready & THREAD_NUDGED || atomic_load(&worker->wait.polling) ||
            thread_stopping(worker))
            return;
        n = thread_poll(worker, ready ? ready : PSC_PASS_ALL);
    } while (n > 0 || ready);
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

static int thread_open_set(psc_worker_t *worker, psc_thread_t *thread)
{
    thread->nudge_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    thread->set = epoll_create1(EPOLL_CLOEXEC);
    if (thread->nudge_fd < 0 || thread->set < 0 ||
        psc_worker_watch(thread->set, thread->nudge_fd, EPOLLIN | EPOLLET,
                         THREAD_NUDGED) < 0)
        return -1;
    return psc_iface_watch_all(worker, thread->set);
}

static void thread_free(psc_thread_t *thread)
{
    if (thread->nudge_fd >= 0)
        close(thread->nudge_fd);
    if (thread->set >= 0)
        close(thread->set);
    free(thread);
}

/* Signals are the program's own threads' business. */
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

int psc_worker_thread_start(psc_worker_t *worker)
{
    psc_thread_t *thread = calloc(1, sizeof *thread);

    if (!thread)
        return PSC_ERR_NO_MEMORY;
    worker->thread = thread;
    if (thread_open_set(worker, thread) == 0 &&
        thread_create(worker, thread) == 0) {
        pthread_setname_np(thread->id, "pscompy poll");
        return PSC_OK;
    }
    worker->thread = NULL;
    thread_free(thread);
    return PSC_ERR_NO_MEMORY;
}

void psc_thread_stop(psc_worker_t *worker)
{
    psc_thread_t *thread = worker->thread;

    if (!thread || atomic_load(&worker->forked))
        return;
    atomic_store(&worker->wait.stopping, 1);
    thread_call(worker);
    psc_worker_signal(thread->nudge_fd);
    pthread_join(thread->id, NULL);
    worker->thread = NULL;
    thread_free(thread);
}
