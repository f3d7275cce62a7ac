/* Sleepers: open, arm, ring and close them. The rule for waking them is in
 * progress.h. */
#include "progress.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../worker.h"

/* ---- doorbells (the eventfds of sleepers) ---- */

static void sleeper_ring(psc_sleeper_t *sleeper)
{
    sleeper->wants = 0;
    if (sleeper->rung)
        return;
    sleeper->rung = true;
    psc_descriptor_signal(sleeper->doorbell);
}

static void wake_sum_up(psc_worker_t *worker)
{
    uint32_t wanted = 0;

    psc_list_for_each(follower, &worker->wait.followers, psc_follower_t, link)
        wanted |= follower->wants;
    psc_list_for_each(sleeper, &worker->wait.sleepers, psc_sleeper_t, link)
        wanted |= sleeper->wants;
    atomic_store(&worker->wait.wanted, wanted);
}

void psc_wake_sleepers(psc_worker_t *worker, uint32_t reasons)
{
    psc_followers_wake(worker, reasons);
    psc_list_for_each(sleeper, &worker->wait.sleepers, psc_sleeper_t, link) {
        if (sleeper->wants & reasons)
            sleeper_ring(sleeper);
    }
    wake_sum_up(worker);
}

void psc_sleeper_disarm(psc_sleeper_t *sleeper)
{
    if (sleeper->wants) {
        sleeper->wants = 0;
        wake_sum_up(sleeper->worker);
    }
    if (!sleeper->rung)
        return;
    sleeper->rung = false;
    psc_descriptor_clear(sleeper->doorbell);
}

/* ---- arming ---- */

static psc_status_t sleeper_arm_fabrics(psc_worker_t *worker)
{
    if (worker->restless || atomic_load(&worker->mail) & PSC_MAIL_OUTSIDE)
        return PSC_ERR_NO_RESOURCE;
    psc_iface_for_each(slot, &worker->interfaces) {
        if (!(slot->attr.caps & PSC_CAP_EVENT)) {
            if (slot->lanes > 0)
                return PSC_ERR_NO_RESOURCE;
            continue;
        }
        if (slot->ops->arm(slot->iface) != PSC_OK)
            return PSC_ERR_NO_RESOURCE;
    }
    return PSC_OK;
}

void psc_sleepers_settle(psc_worker_t *worker)
{
    psc_wake(worker, PSC_WAKE_POLLED);
    if (atomic_load(&worker->wait.wanted) & PSC_WAKE_SPENT &&
        sleeper_arm_fabrics(worker) != PSC_OK)
        psc_wake_sleepers(worker, PSC_WAKE_SPENT);
}

void psc_sleeper_look(psc_sleeper_t *sleeper)
{
    sleeper->seen = atomic_load(&sleeper->worker->wait.generation);
}

static bool sleeper_has_event(psc_sleeper_t *sleeper, uint32_t wants)
{
    psc_worker_t *worker = sleeper->worker;
    uint32_t seen = sleeper->seen;

    psc_sleeper_look(sleeper);
    return seen != sleeper->seen ||
           (!(wants & PSC_WAKE_OWN) && psc_worker_pending(worker));
}

psc_status_t psc_sleeper_try(psc_sleeper_t *sleeper, uint32_t wants)
{
    psc_status_t status;

    psc_sleeper_disarm(sleeper);
    if (wants & PSC_WAKE_EVENT && sleeper_has_event(sleeper, wants))
        return PSC_ERR_NO_RESOURCE;
    status = sleeper_arm_fabrics(sleeper->worker);
    if (status != PSC_OK)
        return status;
    sleeper->wants = wants;
    atomic_fetch_or(&sleeper->worker->wait.wanted, wants);
    return PSC_OK;
}

/* ---- creation and end ---- */

static int sleeper_watch(const psc_sleeper_t *sleeper,
                         const psc_iface_slot_t *slot)
{
    if (!(slot->attr.caps & PSC_CAP_EVENT))
        return 0;
    return psc_descriptor_watch(sleeper->set, slot->ops->event_fd(slot->iface),
                                EPOLLIN, psc_iface_bit(slot).bits);
}

int psc_sleepers_watch(psc_worker_t *worker, const psc_iface_slot_t *slot)
{
    psc_list_for_each(sleeper, &worker->wait.sleepers, psc_sleeper_t, link) {
        if (sleeper_watch(sleeper, slot) < 0)
            return -1;
    }
    return 0;
}

int psc_sleeper_open(psc_sleeper_t *sleeper, psc_worker_t *worker)
{
    *sleeper = (psc_sleeper_t){.worker = worker};
    psc_list_push(&worker->wait.sleepers, &sleeper->link);
    sleeper->set = epoll_create1(EPOLL_CLOEXEC);
    sleeper->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    psc_sleeper_look(sleeper);
    if (sleeper->set < 0 || sleeper->doorbell < 0 ||
        psc_descriptor_watch(sleeper->set, sleeper->doorbell, EPOLLIN, 0) < 0)
        return -1;
    psc_iface_for_each(slot, &worker->interfaces) {
        if (sleeper_watch(sleeper, slot) < 0)
            return -1;
    }
    return 0;
}

void psc_sleeper_close(psc_sleeper_t *sleeper)
{
    psc_list_remove(&sleeper->link);
    if (sleeper->set >= 0)
        close(sleeper->set);
    if (sleeper->doorbell >= 0)
        close(sleeper->doorbell);
}

int psc_sleepers_open(psc_worker_t *worker)
{
    int poller, control;

    psc_list_init(&worker->wait.followers);
    psc_list_init(&worker->wait.sleepers);
    poller = psc_sleeper_open(&worker->wait.poller, worker);
    control = psc_sleeper_open(&worker->wait.control, worker);
    return poller < 0 || control < 0 ? -1 : 0;
}

void psc_sleeper_free(psc_sleeper_t *sleeper)
{
    psc_sleeper_close(sleeper);
    free(sleeper);
}

bool psc_sleeper_drop(psc_sleeper_t *sleeper)
{
    if (atomic_exchange(&sleeper->life, PSC_SLEEPER_RELEASED) !=
        PSC_SLEEPER_ENDED)
        return false;
    psc_sleeper_free(sleeper);
    return true;
}

/* The worker or the sleeper's owner frees the sleeper, whichever ends last. */
static void sleeper_end(psc_sleeper_t *sleeper)
{
    psc_list_remove(&sleeper->link);
    /* the doorbell stays readable for ever */
    psc_descriptor_signal(sleeper->doorbell);
    if (atomic_exchange(&sleeper->life, PSC_SLEEPER_ENDED) ==
        PSC_SLEEPER_RELEASED)
        psc_sleeper_free(sleeper);
}

void psc_sleepers_close(psc_worker_t *worker)
{
    if (worker->wait.outside)
        psc_sleeper_drop(worker->wait.outside);
    psc_sleeper_close(&worker->wait.poller);
    psc_sleeper_close(&worker->wait.control);
    psc_list_for_each(sleeper, &worker->wait.sleepers, psc_sleeper_t, link)
        sleeper_end(sleeper);
}

/* ---- released sleepers ---- */

void psc_sleepers_bury(psc_worker_t *worker)
{
    psc_list_for_each(sleeper, &worker->wait.sleepers, psc_sleeper_t, link) {
        if (atomic_load(&sleeper->life) == PSC_SLEEPER_RELEASED)
            psc_sleeper_free(sleeper);
    }
}
