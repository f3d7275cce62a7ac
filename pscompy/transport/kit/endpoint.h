/* The endpoints of an interface that prove by messages that they hold the
 * lane's token (token_proof.h) and count their messages (credit.h): their
 * states, their failures, which are recorded where they are detected and later
 * reported by progress, and the timer for checks of all endpoints. The
 * functions here send by psc_kit_eps.send, a function of the transport, and
 * none of them waits. Header only. */
#ifndef PSCOMPY_TRANSPORT_KIT_ENDPOINT_H
#define PSCOMPY_TRANSPORT_KIT_ENDPOINT_H

#include <stdarg.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/kit/credit.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/log.h"
#include "pscompy/transport/kit/token_proof.h"
#include "pscompy/transport/kit/restart.h"
#include "pscompy/transport/transport.h"

#define PSC_KIT_EP_TICK_CONNECTING 250000000ll

#define PSC_KIT_EP_STATES(X)                                                   \
    X(NEW)     /* created, not connecting yet */                               \
    X(PROVING) /* the token proof is in progress */                            \
    X(UP)                                                                      \
    X(FAILED)  /* ep_failed was called */                                      \
    X(CLOSED)

typedef enum psc_kit_ep_state {
#define PSC_KIT_EP_ENUM(state) PSC_KIT_EP_##state,
    PSC_KIT_EP_STATES(PSC_KIT_EP_ENUM)
#undef PSC_KIT_EP_ENUM
        PSC_N_KIT_EP_STATES
} psc_kit_ep_state_t;

typedef struct psc_kit_ep psc_kit_ep_t;

/* The transport's function that sends a control message. */
typedef psc_status_t psc_kit_ep_send_t(psc_kit_ep_t *ep, uint8_t kind,
                                       const void *body, size_t len);

/* All endpoints of one interface, and the state that they share. */
typedef struct psc_kit_eps {
    psc_list_t endpoints;
    /* endpoints for which ep_fini was called; freed when progress has
     * returned */
    psc_list_t ended;
    /* endpoints with a failure that progress has yet to report */
    psc_list_t failing;
    psc_list_t owing; /* endpoints that must report credit to their peers */
    psc_kit_ep_send_t *send;
    uint32_t n, n_connecting, n_closed;
    int clock; /* descriptor of the timer, or -1 */
    int64_t tick_ns; /* period of the timer; 0: off */
    int64_t keepalive_ns;
} psc_kit_eps_t;

/* First member of the endpoint structure of a transport that uses this
 * header. */
struct psc_kit_ep {
    psc_ep_t super;
    psc_kit_eps_t *all;
    psc_link_t link; /* in all->endpoints, then in all->ended */
    psc_link_t failing; /* in all->failing, until ep_failed is called */
    psc_link_t owing; /* in all->owing */
    psc_kit_ep_state_t state;
    psc_role_t role;
    uint64_t id; /* unique within the interface; an input of the token proof */
    bool active_since_tick; /* a message has arrived since the last tick */
    bool goodbye; /* the peer has sent its last message */
    bool dead; /* ep_fini was called */
    int64_t deadline; /* when the token proof must be complete */
    psc_proof_t proof;
    psc_credit_t credit;
    psc_status_t status; /* reason of the failure */
    char reason[PSC_REASON_MAX];
};

/* ---- the timer ---- */

static inline bool psc_kit_eps_open(psc_kit_eps_t *all, int64_t keepalive_ns)
{
    all->keepalive_ns = keepalive_ns;
    all->clock = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return all->clock >= 0;
}

static inline void psc_kit_eps_close(psc_kit_eps_t *all)
{
    if (all->clock >= 0)
        close(all->clock);
}

/* Sets the timer's period. Called when the number of endpoints or a state has
 * changed. */
static inline void psc_kit_eps_pace(psc_kit_eps_t *all)
{
    int64_t ns = all->n == 0 ? 0 : all->keepalive_ns;
    struct itimerspec time;

    if (all->n_connecting > 0 && (ns <= 0 || ns > PSC_KIT_EP_TICK_CONNECTING))
        ns = PSC_KIT_EP_TICK_CONNECTING;
    if (ns == all->tick_ns || ns == INT64_MAX)
        return;
    all->tick_ns = ns;
    time.it_value.tv_sec = time.it_interval.tv_sec = ns / 1000000000;
    time.it_value.tv_nsec = time.it_interval.tv_nsec = ns % 1000000000;
    timerfd_settime(all->clock, 0, &time, NULL);
}

/* ---- joining and leaving ---- */

/* Called before the first endpoint is created and before psc_kit_eps_open(). */
static inline void psc_kit_eps_init(psc_kit_eps_t *all, psc_kit_ep_send_t *send)
{
    *all = (psc_kit_eps_t){.clock = -1, .send = send};
    psc_list_init(&all->endpoints);
    psc_list_init(&all->ended);
    psc_list_init(&all->failing);
    psc_list_init(&all->owing);
}

static inline void psc_kit_ep_join(psc_kit_ep_t *ep, psc_kit_eps_t *all,
                                   uint64_t id)
{
    ep->all = all;
    ep->id = id;
    psc_list_init(&ep->failing);
    psc_list_init(&ep->owing);
    psc_list_push(&all->endpoints, &ep->link);
    all->n++;
}

/* All changes of state are made here. */
static inline void psc_kit_ep_enter(psc_kit_ep_t *ep, psc_kit_ep_state_t state)
{
    static const char *const names[PSC_N_KIT_EP_STATES] = {
#define PSC_KIT_EP_NAME(state) #state,
        PSC_KIT_EP_STATES(PSC_KIT_EP_NAME)
#undef PSC_KIT_EP_NAME
    };
    psc_kit_eps_t *all = ep->all;

    psc_iface_log(ep->super.iface, 4, "endpoint %llx: %s -> %s",
                  (unsigned long long)ep->id, names[ep->state], names[state]);
    all->n_connecting += (unsigned)(state == PSC_KIT_EP_PROVING) -
                         (unsigned)(ep->state == PSC_KIT_EP_PROVING);
    all->n_closed += (unsigned)(state == PSC_KIT_EP_CLOSED) -
                     (unsigned)(ep->state == PSC_KIT_EP_CLOSED);
    ep->state = state;
    psc_kit_eps_pace(all);
}

/* Closes the endpoint. A failure that was not reported yet is dropped. */
static inline void psc_kit_ep_close(psc_kit_ep_t *ep)
{
    psc_list_remove(&ep->failing);
    psc_list_remove(&ep->owing);
    if (ep->status >= 0)
        ep->status = PSC_ERR_CLOSED;
    psc_kit_ep_enter(ep, PSC_KIT_EP_CLOSED);
}

/* Called by ep_fini: no later call refers to this endpoint. The endpoint is
 * freed by psc_kit_eps_free(), because a caller of progress may still use
 * it. */
static inline void psc_kit_ep_leave(psc_kit_ep_t *ep)
{
    psc_kit_ep_close(ep);
    explicit_bzero(&ep->proof, sizeof(ep->proof));
    ep->dead = true;
    psc_list_remove(&ep->link);
    psc_list_push(&ep->all->ended, &ep->link);
    ep->all->n--;
    ep->all->n_closed--;
    psc_kit_eps_pace(ep->all);
}

/* Frees the endpoints that have ended. Not called inside progress. */
static inline void psc_kit_eps_free(psc_kit_eps_t *all,
                                    void (*free_one)(psc_kit_ep_t *ep))
{
    psc_link_t *link;

    while ((link = psc_list_pop(&all->ended)))
        free_one(psc_container_of(link, psc_kit_ep_t, link));
}

/* Ends the endpoints that still exist. */
static inline void psc_kit_eps_end(psc_kit_eps_t *all)
{
    while (!psc_list_empty(&all->endpoints)) {
        psc_kit_ep_t *ep =
            psc_container_of(all->endpoints.next, psc_kit_ep_t, link);

        ep->super.iface->ops->ep_fini(&ep->super);
    }
}

/* ---- failing ---- */

static inline bool psc_kit_ep_fails(const psc_kit_ep_t *ep)
{
    return psc_link_listed(&ep->failing);
}

/* Returns true if the endpoint is up and no failure is recorded. */
static inline bool psc_kit_ep_works(const psc_kit_ep_t *ep)
{
    return ep->state == PSC_KIT_EP_UP && !psc_kit_ep_fails(ep);
}

/* Records a failure, unless one is recorded already. Progress reports it. */
__attribute__((format(printf, 3, 4))) static inline void
psc_kit_ep_fail(psc_kit_ep_t *ep, psc_status_t status, const char *format, ...)
{
    const char *name = ep->super.iface->ops->name;
    va_list args;
    int n;

    if (psc_kit_ep_fails(ep) || ep->state >= PSC_KIT_EP_FAILED)
        return;
    n = snprintf(ep->reason, sizeof(ep->reason) / 2, "%s: ", name);
    va_start(args, format);
    vsnprintf(ep->reason + n, sizeof(ep->reason) - (size_t)n, format, args);
    va_end(args);
    ep->status = status;
    psc_list_push(&ep->all->failing, &ep->failing);
}

/* Called by progress: reports the recorded failures. Returns their number. An
 * upcall may end any endpoint. */
static inline unsigned psc_kit_eps_report(psc_kit_eps_t *all)
{
    psc_link_t *link;
    unsigned n = 0;

    while ((link = psc_list_pop(&all->failing))) {
        psc_kit_ep_t *ep = psc_container_of(link, psc_kit_ep_t, failing);

        psc_kit_ep_enter(ep, PSC_KIT_EP_FAILED);
        ep->super.iface->up->ep_failed(&ep->super, ep->status, ep->reason);
        n++;
    }
    return n;
}

/* Returns the status of a call on an endpoint that does not work. The status is
 * PSC_ERR_NO_RESOURCE until progress has reported the failure with its
 * reason. */
static inline psc_status_t psc_kit_ep_refuse(const psc_kit_ep_t *ep)
{
    if (psc_kit_ep_fails(ep))
        return PSC_ERR_NO_RESOURCE;
    return ep->status < 0 ? ep->status : PSC_ERR_INVALID;
}

/* ---- checks of all endpoints ---- */

static inline void psc_kit_ep_tick(psc_kit_ep_t *ep, int64_t now,
                                   const char *variable,
                                   void (*ask)(psc_kit_ep_t *silent))
{
    if (psc_kit_ep_fails(ep) || ep->state == PSC_KIT_EP_NEW ||
        ep->state >= PSC_KIT_EP_FAILED)
        return;
    if (ep->state == PSC_KIT_EP_PROVING && now >= ep->deadline) {
        psc_kit_ep_fail(ep, PSC_ERR_CONNECT,
                        "the peer did not answer in time (%s)", variable);
        return;
    }
    if (!ep->active_since_tick && ep->role != PSC_ROLE_SELF)
        ask(ep);
    ep->active_since_tick = false;
}

/* Called by progress. If the timer has expired, fails the endpoints that have
 * not connected in time (`variable` names the setting), and calls `ask` for
 * those whose peer is silent. Returns true if the timer has expired. */
static inline bool psc_kit_eps_tick(psc_kit_eps_t *all, const char *variable,
                                    void (*ask)(psc_kit_ep_t *silent))
{
    uint64_t rings;
    int64_t now;

    if (PSC_RESTART(read(all->clock, &rings, sizeof(rings))) != sizeof(rings))
        return false;
    now = psc_clock_now();
    psc_list_for_each(ep, &all->endpoints, psc_kit_ep_t, link)
        psc_kit_ep_tick(ep, now, variable, ask);
    return true;
}

#endif
