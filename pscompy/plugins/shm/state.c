/* The states of an endpoint, and how failures are recorded and reported. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "shm.h"

psc_status_t shm_random(void *buffer, size_t len)
{
    return getrandom(buffer, len, 0) == (ssize_t)len ? PSC_OK
                                                     : PSC_ERR_TRANSPORT;
}

#define SHM_TO(state) (1u << SHM_EP_##state)

/* The states of an endpoint that may follow each state. */
static const unsigned shm_ep_next[SHM_N_EP_STATES] = {
    [SHM_EP_NEW] =
        SHM_TO(CONNECTING) | SHM_TO(UP) | SHM_TO(FAILED) | SHM_TO(CLOSED),
    [SHM_EP_CONNECTING] = SHM_TO(UP) | SHM_TO(FAILED) | SHM_TO(CLOSED),
    [SHM_EP_UP] = SHM_TO(LEAVING) | SHM_TO(FAILED) | SHM_TO(CLOSED),
    [SHM_EP_LEAVING] = SHM_TO(FAILED) | SHM_TO(CLOSED),
    [SHM_EP_FAILED] = SHM_TO(CLOSED),
};

static bool shm_ep_counts(shm_ep_state_t state)
{
    return state == SHM_EP_NEW || state == SHM_EP_CONNECTING;
}

/* All changes of an endpoint's state are made here. Returns false and changes
 * nothing if `state` may not follow the present one (a second failure is
 * ignored). */
bool shm_ep_enter(shm_ep_t *ep, shm_ep_state_t state)
{
    shm_iface_t *iface = shm_ep_iface(ep);

    if ((shm_ep_next[ep->state] & 1u << state) == 0)
        return false;
    if (shm_ep_counts(ep->state) && !shm_ep_counts(state))
        iface->n_connecting--;
    ep->state = state;
    if (state == SHM_EP_UP)
        shm_active_begin(ep);
    else if (state == SHM_EP_LEAVING)
        shm_active_add(ep);
    return true;
}

static void shm_ep_note(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);

    ep->failing = true;
    iface->n_failing++;
    if (iface->armed) /* Wake the thread that sleeps on iface->epoll. */
        shm_doorbell_ring(iface->doorbell.fd);
}

void shm_ep_fail(shm_ep_t *ep, psc_status_t status, const char *format, ...)
{
    char reason[PSC_REASON_MAX];
    va_list args;

    if (!shm_ep_enter(ep, SHM_EP_FAILED))
        return;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    memcpy(ep->reason, reason, sizeof reason);
    ep->status = status;
    psc_proof_wipe(&ep->proof);
    if (ep->sock != NULL)
        shm_socket_refuse(ep->sock, ep->reason);
    shm_ep_note(ep);
}

void shm_ep_leave(shm_ep_t *ep, psc_status_t status, const char *reason)
{
    if (!shm_ep_enter(ep, SHM_EP_LEAVING))
        return;
    ep->status = status;
    snprintf(ep->reason, sizeof ep->reason, "%s", reason);
}

void shm_iface_report(shm_iface_t *iface)
{
    for (uint32_t i = 0; i < iface->n_eps; i++) {
        shm_ep_t *ep = iface->eps[i];

        if (!ep->failing)
            continue;
        ep->failing = false;
        iface->n_failing--;
        if (ep->state == SHM_EP_FAILED)
            iface->super.up->ep_failed(&ep->super, ep->status, ep->reason);
    }
}
