/* The endpoints of an interface that prove the token by messages
 * (token_proof.h) and count their messages (credit.h): their states, their
 * failures, which are recorded where they are found and reported by progress,
 * and the timer for checks of all endpoints. These functions send by the
 * transport's function, and none of them waits. Header only. */
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
#include "pscompy/transport/transport.h"

#define PSC_PARTY_TICK_CONNECTING 250000000ll

#define PSC_PARTY_STATES(X)                                                    \
    X(NEW)     /* created */                                                   \
    X(MEETING) /* the token proof is in progress */                            \
    X(UP)                                                                      \
    X(FAILED)  /* ep_failed was called */                                      \
    X(CLOSED)

typedef enum psc_party_state {
#define PSC_PARTY_ENUM(state) PSC_PARTY_##state,
    PSC_PARTY_STATES(PSC_PARTY_ENUM)
#undef PSC_PARTY_ENUM
        PSC_N_PARTY_STATES
} psc_party_state_t;

typedef struct psc_party psc_party_t;

/* Sends a control message of the transport. */
typedef psc_status_t psc_party_send_t(psc_party_t *party, uint8_t kind,
                                      const void *body, size_t len);

/* All endpoints of an interface. */
typedef struct psc_parties {
    psc_list_t endpoints;
    /* endpoints after ep_fini; freed when progress has returned */
    psc_list_t ended;
    /* endpoints with a failure that progress has yet to report */
    psc_list_t failing;
    psc_list_t owing; /* endpoints that must report credit to their peers */
    psc_party_send_t *send;
    uint32_t n, n_connecting, n_closed;
    int clock; /* descriptor of the timer, or -1 */
    int64_t tick_ns; /* period of the timer; 0: off */
    int64_t keepalive_ns;
} psc_parties_t;

/* The first member of the endpoint structure of such a transport. */
struct psc_party {
    psc_ep_t super;
    psc_parties_t *all;
    psc_link_t link; /* in all->endpoints, then in all->ended */
    psc_link_t failing; /* in all->failing, until ep_failed is called */
    psc_link_t owing; /* in all->owing */
    psc_party_state_t state;
    psc_role_t role;
    uint64_t id; /* unique within the interface; the proof is bound to it */
    bool heard; /* a message has arrived since the last tick */
    bool goodbye; /* the peer has sent its last message */
    bool dead; /* ep_fini was called */
    int64_t deadline; /* when the token proof must be complete */
    psc_proof_t proof;
    psc_credit_t credit;
    psc_status_t status; /* why it failed */
    char reason[PSC_REASON_MAX];
};

/* ---- the clock ---- */

static inline bool psc_parties_open(psc_parties_t *all, int64_t keepalive_ns)
{
    all->keepalive_ns = keepalive_ns;
    all->clock = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return all->clock >= 0;
}

static inline void psc_parties_close(psc_parties_t *all)
{
    if (all->clock >= 0)
        close(all->clock);
}

/* Sets the timer's period. Called when the number of endpoints or a state has
 * changed. */
static inline void psc_parties_pace(psc_parties_t *all)
{
    int64_t ns = all->n == 0 ? 0 : all->keepalive_ns;
    struct itimerspec time;

    if (all->n_connecting > 0 && (ns <= 0 || ns > PSC_PARTY_TICK_CONNECTING))
        ns = PSC_PARTY_TICK_CONNECTING;
    if (ns == all->tick_ns || ns == INT64_MAX)
        return;
    all->tick_ns = ns;
    time.it_value.tv_sec = time.it_interval.tv_sec = ns / 1000000000;
    time.it_value.tv_nsec = time.it_interval.tv_nsec = ns % 1000000000;
    timerfd_settime(all->clock, 0, &time, NULL);
}

/* ---- joining and leaving ---- */

/* Called before the first endpoint is created and before psc_parties_open(). */
static inline void psc_parties_init(psc_parties_t *all, psc_party_send_t *send)
{
    *all = (psc_parties_t){.clock = -1, .send = send};
    psc_list_init(&all->endpoints);
    psc_list_init(&all->ended);
    psc_list_init(&all->failing);
    psc_list_init(&all->owing);
}

static inline void psc_party_join(psc_party_t *party, psc_parties_t *all,
                                  uint64_t id)
{
    party->all = all;
    party->id = id;
    psc_list_init(&party->failing);
    psc_list_init(&party->owing);
    psc_list_push(&all->endpoints, &party->link);
    all->n++;
}

/* All changes of state are made here. */
static inline void psc_party_enter(psc_party_t *party, psc_party_state_t state)
{
    static const char *const names[PSC_N_PARTY_STATES] = {
#define PSC_PARTY_NAME(state) #state,
        PSC_PARTY_STATES(PSC_PARTY_NAME)
#undef PSC_PARTY_NAME
    };
    psc_parties_t *all = party->all;

    psc_iface_log(party->super.iface, 4, "endpoint %llx: %s -> %s",
                  (unsigned long long)party->id, names[party->state],
                  names[state]);
    all->n_connecting += (unsigned)(state == PSC_PARTY_MEETING) -
                         (unsigned)(party->state == PSC_PARTY_MEETING);
    all->n_closed += (unsigned)(state == PSC_PARTY_CLOSED) -
                     (unsigned)(party->state == PSC_PARTY_CLOSED);
    party->state = state;
    psc_parties_pace(all);
}

/* Closes the endpoint. A failure that was not reported yet is dropped. */
static inline void psc_party_close(psc_party_t *party)
{
    psc_list_remove(&party->failing);
    psc_list_remove(&party->owing);
    if (party->status >= 0)
        party->status = PSC_ERR_CLOSED;
    psc_party_enter(party, PSC_PARTY_CLOSED);
}

/* Called by ep_fini: no later call refers to this endpoint. It is freed by
 * psc_parties_free(), because a caller of progress may still use it. */
static inline void psc_party_leave(psc_party_t *party)
{
    psc_party_close(party);
    explicit_bzero(&party->proof, sizeof(party->proof));
    party->dead = true;
    psc_list_remove(&party->link);
    psc_list_push(&party->all->ended, &party->link);
    party->all->n--;
    party->all->n_closed--;
    psc_parties_pace(party->all);
}

/* Frees the endpoints that have ended. Not called inside progress. */
static inline void psc_parties_free(psc_parties_t *all,
                                    void (*free_one)(psc_party_t *party))
{
    psc_link_t *link;

    while ((link = psc_list_pop(&all->ended)))
        free_one(psc_container_of(link, psc_party_t, link));
}

/* Ends the endpoints that still exist. */
static inline void psc_parties_end(psc_parties_t *all)
{
    while (!psc_list_empty(&all->endpoints)) {
        psc_party_t *party =
            psc_container_of(all->endpoints.next, psc_party_t, link);

        party->super.iface->ops->ep_fini(&party->super);
    }
}

/* ---- failing ---- */

static inline bool psc_party_fails(const psc_party_t *party)
{
    return psc_link_listed(&party->failing);
}

/* Returns true if the endpoint is up and no failure is recorded. */
static inline bool psc_party_works(const psc_party_t *party)
{
    return party->state == PSC_PARTY_UP && !psc_party_fails(party);
}

/* Records a failure, unless one is recorded already. Progress reports it. */
__attribute__((format(printf, 3, 4))) static inline void
psc_party_fail(psc_party_t *party, psc_status_t status, const char *format, ...)
{
    const char *name = party->super.iface->ops->name;
    va_list args;
    int n;

    if (psc_party_fails(party) || party->state >= PSC_PARTY_FAILED)
        return;
    n = snprintf(party->reason, sizeof(party->reason) / 2, "%s: ", name);
    va_start(args, format);
    vsnprintf(party->reason + n, sizeof(party->reason) - (size_t)n, format,
              args);
    va_end(args);
    party->status = status;
    psc_list_push(&party->all->failing, &party->failing);
}

/* Called by progress: reports the recorded failures. Returns their number. An
 * upcall may end any endpoint. */
static inline unsigned psc_parties_report(psc_parties_t *all)
{
    psc_link_t *link;
    unsigned n = 0;

    while ((link = psc_list_pop(&all->failing))) {
        psc_party_t *party = psc_container_of(link, psc_party_t, failing);

        psc_party_enter(party, PSC_PARTY_FAILED);
        party->super.iface->up->ep_failed(&party->super, party->status,
                                          party->reason);
        n++;
    }
    return n;
}

/* The status of a call on an endpoint that does not work: PSC_ERR_NO_RESOURCE
 * until progress has reported the failure with its reason. */
static inline psc_status_t psc_party_refuse(const psc_party_t *party)
{
    if (psc_party_fails(party))
        return PSC_ERR_NO_RESOURCE;
    return party->status < 0 ? party->status : PSC_ERR_INVALID;
}

/* ---- checks of all endpoints ---- */

static inline void psc_party_tick(psc_party_t *party, int64_t now,
                                  const char *variable,
                                  void (*ask)(psc_party_t *silent))
{
    if (psc_party_fails(party) || party->state == PSC_PARTY_NEW ||
        party->state >= PSC_PARTY_FAILED)
        return;
    if (party->state == PSC_PARTY_MEETING && now >= party->deadline) {
        psc_party_fail(party, PSC_ERR_CONNECT,
                       "the peer did not answer in time (%s)", variable);
        return;
    }
    if (!party->heard && party->role != PSC_ROLE_SELF)
        ask(party);
    party->heard = false;
}

/* Called by progress. If the timer has expired, fails the endpoints that have
 * not connected in time (`variable` names the setting), and calls `ask` for
 * those whose peer is silent. Returns true if the timer has expired. */
static inline bool psc_parties_tick(psc_parties_t *all, const char *variable,
                                    void (*ask)(psc_party_t *silent))
{
    uint64_t rings;
    int64_t now;

    if (read(all->clock, &rings, sizeof(rings)) != sizeof(rings))
        return false;
    now = psc_clock_now();
    psc_list_for_each(party, &all->endpoints, psc_party_t, link)
        psc_party_tick(party, now, variable, ask);
    return true;
}

#endif
