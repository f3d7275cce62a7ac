#include "progress.h"

#include <poll.h>
#include <sys/epoll.h>

#include "../worker.h"
#include "pscompy/transport/kit/clock.h"

/* A background thread stops polling for a while (background_rest) after this
 * many failures to arm its sleeper in a row, each followed by a pass that finds
 * nothing. One failure is usual after a pass that found something. */
#define BACKGROUND_VAIN 2u
/* longest sleep in ns, if there is a deadline */
#define BACKGROUND_NS_MAX 1000000000000

static psc_worker_t *background_worker(const psc_background_t *self)
{
    return self->sleeper->worker;
}

/* Returns the nanoseconds until the deadline, at most `most`. */
static int64_t background_time(const psc_background_t *self, int64_t most)
{
    int64_t left = most;

    if (self->deadline != INT64_MAX)
        left = self->deadline - psc_clock_now();
    if (left > most)
        left = most;
    return left > 0 ? left : 0;
}

/* Returns the milliseconds until the deadline for epoll_wait, rounded up; -1 if
 * there is no deadline. */
static int background_milliseconds(const psc_background_t *self)
{
    return self->deadline == INT64_MAX
               ? -1
               : (int)((background_time(self, BACKGROUND_NS_MAX) + 999999) /
                       1000000);
}

/* ---- while other threads poll ---- */

/* Wait until the sleeper's doorbell (eventfd) is rung, or for `ns` at most
 * (INT64_MAX: no limit). */
static void background_hear(const psc_background_t *self, int64_t ns)
{
    struct pollfd doorbell = {.fd = self->sleeper->doorbell, .events = POLLIN};
    int64_t left = background_time(self, ns);
    struct timespec time = {left / 1000000000, left % 1000000000};

    ppoll(&doorbell, 1, &time, NULL);
}

static uint32_t background_passes(psc_worker_t *worker)
{
    uint32_t passes;

    psc_lock_acquire(&worker->lock);
    passes = worker->pass;
    psc_worker_leave(worker);
    return passes;
}

/* Arm the sleeper's doorbell for the moment at which the poller's role becomes
 * free or, with PSC_WAKE_EVENT, at which a request or a queue of the worker
 * changes. If no thread holds the role, or its holder is awake, arms nothing
 * and returns false. */
static bool background_by(psc_background_t *self)
{
    psc_worker_t *worker = background_worker(self);
    bool asleep;

    psc_lock_acquire(&worker->lock);
    psc_sleeper_disarm(self->sleeper);
    asleep = worker->wait.poller.wants != 0;
    if (asleep) {
        self->sleeper->wants =
            PSC_WAKE_FREE | PSC_WAKE_END | (self->wants & PSC_WAKE_EVENT);
        atomic_fetch_or(&worker->wait.wanted, self->sleeper->wants);
    }
    psc_worker_leave(worker);
    return asleep;
}

/* Wait until no other thread has polled for patience_ns, or completions and
 * messages have waited for this time without a thread that takes them. */
static void background_rest(psc_background_t *self)
{
    psc_worker_t *worker = background_worker(self);
    uint32_t passes;
    bool stand_by, pending;

    do {
        passes = background_passes(worker);
        stand_by = background_by(self);
        pending = psc_worker_pending(worker); /* after arming (rule 8) */
        if (self->ended(self))
            return;
        background_hear(self,
                        stand_by && !pending ? INT64_MAX : self->patience_ns);
    } while ((passes != background_passes(worker) ||
              atomic_load(&worker->wait.polling)) &&
             !(pending && psc_worker_pending(worker)));
}

/* ---- while no other thread polls ---- */

static unsigned background_poll(psc_background_t *self, psc_ifaces_t ifaces)
{
    psc_worker_t *worker = background_worker(self);
    unsigned n;

    psc_lock_acquire(&worker->lock);
    psc_sleeper_disarm(self->sleeper);
    n = psc_worker_progress_locked(worker, ifaces);
    psc_worker_leave(worker);
    return n;
}

static psc_status_t background_arm(psc_background_t *self)
{
    psc_worker_t *worker = background_worker(self);
    psc_status_t status;

    psc_lock_acquire(&worker->lock);
    /* the background thread looks for events again after arming */
    psc_sleeper_look(self->sleeper);
    status = psc_sleeper_try(self->sleeper, self->wants);
    if (status != PSC_OK)
        psc_settle(worker);
    psc_worker_leave(worker);
    return status;
}

static bool background_needed(psc_background_t *self)
{
    return !atomic_load(&background_worker(self)->wait.polling) &&
           !self->ended(self);
}

/* Returns true if there are completions or messages that the background thread
 * is to take, because no other thread polls that would take them. */
static bool background_has_event(const psc_background_t *self)
{
    const psc_worker_t *worker = background_worker(self);

    return self->wants & PSC_WAKE_EVENT && psc_worker_pending(worker) &&
           atomic_load(&worker->wait.polling) != PSC_POLLING;
}

/* Sleep until a fabric is readable or the doorbell is rung. */
static psc_ifaces_t background_doze(const psc_background_t *self)
{
    struct epoll_event events[PSC_IFACES_MAX + 1];
    psc_ifaces_t ready = {0};
    int n = epoll_wait(self->sleeper->set, events, PSC_IFACES_MAX + 1,
                       background_milliseconds(self));

    for (int i = 0; i < n; i++)
        ready.bits |= events[i].data.u32;
    return ready;
}

/* Sleep on the fabrics and poll them, while no other thread holds the poller's
 * role. */
static void background_drive(psc_background_t *self)
{
    unsigned vain = 0;

    while (vain < BACKGROUND_VAIN) {
        bool armed = background_arm(self) == PSC_OK;
        psc_ifaces_t ready = PSC_PASS_ALL;

        if (!background_needed(self) || background_has_event(self))
            return;
        if (armed)
            ready = background_doze(self);
        if (!ready.bits) { /* no fabric is readable: the doorbell was rung */
            if (self->wants & PSC_WAKE_POLLED || !background_needed(self))
                return;
            ready = PSC_PASS_ALL;
        }
        vain = background_poll(self, ready) > 0 || armed ? 0 : vain + 1;
    }
}

void psc_background(psc_background_t *self)
{
    while (!self->ended(self)) {
        background_drive(self);
        if (!background_has_event(self))
            background_rest(self);
        if (background_has_event(self))
            return;
    }
}
