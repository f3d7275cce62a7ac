/* A worker: all state that one lock guards. */
#pragma once

#include "../counters.h"
#include "../control_events.h"
#include "../request.h"
#include "parts.h"
#include "flow.h"
#include "interfaces.h"
#include "pscompy/transport/kit/lock.h"
#include "sleeper.h"

typedef struct psc_thread psc_thread_t;
typedef struct psc_upward psc_upward_t; /* defined in upward.h */

/* Bits of psc_worker_t.mail. PSC_MAIL_OUTSIDE: other threads have put something
 * into am.inbox or memory.returned, have released a sleeper, or want all
 * waiting threads to check their requests. */
#define PSC_MAIL_OUTSIDE 1u
#define PSC_MAIL_WOKEN 2u /* psc_wait_state_t.woken is not empty */
#define PSC_MAIL_RUNS 4u /* psc_runs_t.ready has a run that can go on */

struct psc_worker {
    psc_lock_t lock;
    /* the functions by which the core calls the protocols; upward.h */
    const psc_upward_t *up;
    /* the protocols that a message tries, and that of messages which are not
     * matched; proto/protocol.h */
    const struct psc_proto *const *protocols, *unmatched;
    psc_worker_config_t config;
    atomic_bool forked;
    uint32_t pass; /* counts progress passes */
    /* True if the last pass made progress or work was queued since: more may be
     * pending although no descriptor is readable. */
    bool restless;
    /* PSC_MAIL_ bits: kinds of work that the lock's holder has to do before it
     * releases the lock */
    atomic_uint mail;
    psc_ends_t ends;
    psc_interfaces_t interfaces;
    psc_wait_state_t wait;
    psc_thread_t *thread; /* the progress thread, or NULL */
    psc_list_t conns; /* all connections except those in ends.doomed */
    psc_list_t busy; /* connections with queued work */
    psc_control_events_t control_events;
    psc_requests_t requests;
    psc_am_state_t am;
    psc_matching_t matching;
    psc_runs_t runs;
    psc_budget_t budget;
    psc_memory_t memory;
    psc_counters_t counters;
    /* counters of all connections that are not up yet */
    psc_counters_t unowned;
};
