/* Sleepers for event loops and for the control thread. Each function takes the
 * lock. The rule for waking sleepers is in progress.h. */
#include "progress.h"

#include <stdlib.h>

#include "../worker.h"
#include "pscompy/transport/kit/clock.h"

/* Wake reasons of a sleeper that waits for completions and messages as well as
 * for the fabrics. */
#define SLEEP_OUTSIDE (PSC_WAKE_SPENT | PSC_WAKE_EVENT)

/* ---- for event loops ---- */

static psc_sleeper_t *sleeper_create(psc_worker_t *worker)
{
    psc_sleeper_t *sleeper = malloc(sizeof *sleeper);

    if (sleeper && psc_sleeper_open(sleeper, worker) < 0) {
        psc_sleeper_free(sleeper);
        return NULL;
    }
    return sleeper;
}

psc_status_t psc_sleeper_create(psc_worker_t *worker, psc_sleeper_t **sleeper_p)
{
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    *sleeper_p = sleeper_create(worker);
    psc_worker_leave(worker);
    return *sleeper_p ? PSC_OK : PSC_ERR_NO_MEMORY;
}

void psc_sleeper_release(psc_worker_t *worker, psc_sleeper_t *sleeper)
{
    if (!psc_sleeper_drop(sleeper) && worker)
        psc_worker_mail(worker);
}

int psc_sleeper_descriptor(const psc_sleeper_t *sleeper)
{
    return sleeper->set;
}

static psc_status_t sleeper_arm(psc_sleeper_t *sleeper, uint32_t wants)
{
    psc_worker_t *worker = sleeper->worker;
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_sleeper_try(sleeper, wants);
    if (status != PSC_OK)
        psc_settle(worker);
    psc_worker_leave(worker);
    return status;
}

psc_status_t psc_sleeper_arm(psc_sleeper_t *sleeper)
{
    return sleeper_arm(sleeper, SLEEP_OUTSIDE);
}

unsigned psc_sleeper_progress(psc_sleeper_t *sleeper)
{
    psc_worker_t *worker = sleeper->worker;
    unsigned n;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    psc_sleeper_disarm(sleeper);
    n = psc_worker_progress_locked(worker, PSC_PASS_ALL);
    psc_sleeper_look(sleeper);
    psc_worker_leave(worker);
    return n;
}

/* ---- for a thread that runs call-backs while the program computes ---- */

#define SLEEPER_PATIENCE_NS 500000

typedef struct sleeper_wait {
    psc_background_t background;
    psc_request_t *request;
    unsigned wakes; /* psc_wait_state_t.wakes when the wait began */
} sleeper_wait_t;

static psc_status_t sleeper_wait_status(sleeper_wait_t *self)
{
    psc_worker_t *worker = self->background.sleeper->worker;
    int64_t deadline = self->background.deadline;

    if (psc_request_state(self->request) != PSC_REQUEST_ACTIVE)
        return PSC_OK;
    if (atomic_load(&worker->forked))
        return PSC_ERR_FORKED;
    if (atomic_load(&worker->wait.wakes) != self->wakes)
        return PSC_ERR_INTERRUPTED;
    if (deadline != INT64_MAX && psc_clock_now() >= deadline)
        return PSC_ERR_TIMEOUT;
    return PSC_INPROGRESS;
}

static bool sleeper_wait_ended(psc_background_t *background)
{
    return sleeper_wait_status(psc_container_of(background, sleeper_wait_t,
                                                background)) != PSC_INPROGRESS;
}

psc_status_t psc_sleeper_wait(psc_sleeper_t *sleeper, psc_request_t *request,
                              int64_t timeout_ns)
{
    psc_worker_t *worker = sleeper->worker;
    sleeper_wait_t self = {
        .background = {.sleeper = sleeper,
                       .wants = SLEEP_OUTSIDE | PSC_WAKE_TAKEN,
                       .patience_ns = SLEEPER_PATIENCE_NS,
                       .deadline = psc_clock_deadline(timeout_ns),
                       .ended = sleeper_wait_ended},
        .request = request,
        .wakes = atomic_load(&worker->wait.wakes)};

    psc_request_count_wait(request, +1);
    psc_background(&self.background);
    psc_request_count_wait(request, -1);
    if (psc_worker_enter(worker, 0) == PSC_OK) {
        psc_sleeper_disarm(sleeper);
        psc_worker_leave(worker);
    }
    return sleeper_wait_status(&self);
}

/* ---- the sleeper of psc_worker_fd ---- */

static psc_sleeper_t *sleeper_outside(psc_worker_t *worker)
{
    psc_sleeper_t *sleeper;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return NULL;
    if (!worker->wait.outside)
        worker->wait.outside = sleeper_create(worker);
    sleeper = worker->wait.outside;
    psc_worker_leave(worker);
    return sleeper;
}

int psc_worker_fd(psc_worker_t *worker)
{
    psc_sleeper_t *sleeper = sleeper_outside(worker);

    return sleeper ? sleeper->set : -1;
}

psc_status_t psc_worker_arm(psc_worker_t *worker)
{
    psc_sleeper_t *sleeper = sleeper_outside(worker);

    if (sleeper)
        return psc_sleeper_arm(sleeper);
    return atomic_load(&worker->forked) ? PSC_ERR_FORKED : PSC_ERR_NO_MEMORY;
}

/* ---- the control thread's sleeper ---- */

int psc_worker_fabric_fd(psc_worker_t *worker)
{
    return worker->wait.control.set;
}

int psc_worker_arm_fabric(psc_worker_t *worker)
{
    return sleeper_arm(&worker->wait.control, PSC_WAKE_SPENT);
}

unsigned psc_worker_progress(psc_worker_t *worker)
{
    return psc_sleeper_progress(&worker->wait.control);
}
