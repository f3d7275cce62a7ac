#include "stand_in.h"

#include <poll.h>
#include <sys/epoll.h>

#include "../worker.h"
#include "progress.h"
#include "pscompy/transport/kit/clock.h"
#include "sleep.h"

/* A stand-in stops polling for a while (stand_in_rest) after this many failures
 * to arm its sleeper in a row, each followed by a pass that finds nothing. One
 * failure is usual after a pass that found something. */
#define STAND_IN_VAIN 2u
/* longest sleep in ns, if there is a deadline */
#define STAND_IN_NS_MAX 1000000000000

static psc_worker_t *stand_in_worker(const psc_stand_in_t *self)
{
    return self->sleeper->worker;
}

/* Returns the nanoseconds until the deadline, at most `most`. */
static int64_t stand_in_time(const psc_stand_in_t *self, int64_t most)
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
static int stand_in_milliseconds(const psc_stand_in_t *self)
{
    return self->deadline == INT64_MAX
               ? -1
               : (int)((stand_in_time(self, STAND_IN_NS_MAX) + 999999) /
                       1000000);
}

/* ---- while other threads poll ---- */

/* Wait until the sleeper's bell (eventfd) is rung, or for `ns` at most
 * (INT64_MAX: no limit). */
static void stand_in_hear(const psc_stand_in_t *self, int64_t ns)
{
    struct pollfd bell = {.fd = self->sleeper->bell, .events = POLLIN};
    int64_t left = stand_in_time(self, ns);
    struct timespec time = {left / 1000000000, left % 1000000000};

    ppoll(&bell, 1, &time, NULL);
}

static uint32_t stand_in_passes(psc_worker_t *worker)
{
    uint32_t passes;

    psc_lock_acquire(&worker->lock);
    passes = worker->pass;
    psc_worker_leave(worker);
    return passes;
}

/* Arm the sleeper's bell for the moment at which the poller's role becomes free
 * or, with PSC_WAKE_EVENT, at which a request or a queue of the worker changes.
 * If no thread holds the role, or its holder is awake, arms nothing and
 * returns false. */
static bool stand_in_by(psc_stand_in_t *self)
{
    psc_worker_t *worker = stand_in_worker(self);
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
static void stand_in_rest(psc_stand_in_t *self)
{
    psc_worker_t *worker = stand_in_worker(self);
    uint32_t passes;
    bool stand_by, pending;

    do {
        passes = stand_in_passes(worker);
        stand_by = stand_in_by(self);
        pending = psc_worker_pending(worker); /* after arming (rule 8) */
        if (self->ended(self))
            return;
        stand_in_hear(self,
                      stand_by && !pending ? INT64_MAX : self->patience_ns);
    } while ((passes != stand_in_passes(worker) ||
              atomic_load(&worker->wait.polling)) &&
             !(pending && psc_worker_pending(worker)));
}

/* ---- while no other thread polls ---- */

static unsigned stand_in_poll(psc_stand_in_t *self, psc_ifaces_t ifaces)
{
    psc_worker_t *worker = stand_in_worker(self);
    unsigned n;

    psc_lock_acquire(&worker->lock);
    psc_sleeper_disarm(self->sleeper);
    n = psc_worker_progress_locked(worker, ifaces);
    psc_worker_leave(worker);
    return n;
}

static psc_status_t stand_in_arm(psc_stand_in_t *self)
{
    psc_worker_t *worker = stand_in_worker(self);
    psc_status_t status;

    psc_lock_acquire(&worker->lock);
    /* the stand-in looks for events again after arming */
    psc_sleeper_look(self->sleeper);
    status = psc_sleeper_try(self->sleeper, self->wants);
    if (status != PSC_OK)
        psc_settle(worker);
    psc_worker_leave(worker);
    return status;
}

static bool stand_in_needed(psc_stand_in_t *self)
{
    return !atomic_load(&stand_in_worker(self)->wait.polling) &&
           !self->ended(self);
}

/* Returns true if there are completions or messages that the stand-in is to
 * take, because no other thread polls that would take them. */
static bool stand_in_has_event(const psc_stand_in_t *self)
{
    const psc_worker_t *worker = stand_in_worker(self);

    return self->wants & PSC_WAKE_EVENT && psc_worker_pending(worker) &&
           atomic_load(&worker->wait.polling) != PSC_POLLING;
}

/* Sleep until a fabric is readable or the bell is rung. */
static psc_ifaces_t stand_in_doze(const psc_stand_in_t *self)
{
    struct epoll_event events[PSC_IFACES_MAX + 1];
    psc_ifaces_t ready = {0};
    int n = epoll_wait(self->sleeper->set, events, PSC_IFACES_MAX + 1,
                       stand_in_milliseconds(self));

    for (int i = 0; i < n; i++)
        ready.bits |= events[i].data.u32;
    return ready;
}

/* Sleep on the fabrics and poll them, while no other thread holds the poller's
 * role. */
static void stand_in_drive(psc_stand_in_t *self)
{
    unsigned vain = 0;

    while (vain < STAND_IN_VAIN) {
        bool armed = stand_in_arm(self) == PSC_OK;
        psc_ifaces_t ready = PSC_PASS_ALL;

        if (!stand_in_needed(self) || stand_in_has_event(self))
            return;
        if (armed)
            ready = stand_in_doze(self);
        if (!ready.bits) { /* no fabric is readable: the bell was rung */
            if (self->wants & PSC_WAKE_POLLED || !stand_in_needed(self))
                return;
            ready = PSC_PASS_ALL;
        }
        vain = stand_in_poll(self, ready) > 0 || armed ? 0 : vain + 1;
    }
}

void psc_stand_in(psc_stand_in_t *self)
{
    while (!self->ended(self)) {
        stand_in_drive(self);
        if (!stand_in_has_event(self))
            stand_in_rest(self);
        if (stand_in_has_event(self))
            return;
    }
}
