/* Flow control of eager messages as pure arithmetic; proto/credit.h describes
 * it. All counts of a psc_flow_t are cumulative bytes modulo 2^32. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Number of eager bytes that each side may send before it knows the window of
 * the other side. */
#define PSC_CREDIT_INITIAL (256u << 10)

/* ---- a worker: memory for messages that no receive has taken ---- */

typedef struct psc_budget {
    /* bytes of unexpected and unpolled messages to keep before credit is
     * withheld */
    uint64_t max;
    uint64_t kept; /* bytes of unexpected and of unpolled messages */
    uint64_t window_max;
    uint32_t n_up;   /* connections that are up */
    uint32_t window; /* eager bytes that each connection may have in flight */
} psc_budget_t;

static inline bool psc_budget_left(const psc_budget_t *budget)
{
    return budget->kept <= budget->max;
}

/* Add `change` to the number of connections that are up. Together they may have
 * no more than `max` bytes in flight, apart from the initial credit of each. */
static inline void psc_budget_share(psc_budget_t *budget, int change)
{
    uint64_t share = budget->max;

    budget->n_up += (uint32_t)change;
    if (budget->n_up > 1)
        share /= budget->n_up;
    if (share > budget->window_max)
        share = budget->window_max;
    if (share < PSC_CREDIT_INITIAL)
        share = PSC_CREDIT_INITIAL;
    budget->window = share > INT32_MAX / 2 ? INT32_MAX / 2 : (uint32_t)share;
}

/* ---- a connection ---- */

typedef struct psc_flow {
    uint32_t limit;    /* eager bytes that this side may have sent in total */
    uint32_t sent;
    uint32_t consumed;
    /* number of eager bytes received from the peer; at most `granted` */
    uint32_t got;
    /* limit on the peer's eager bytes that was last reported to the peer */
    uint32_t granted;
    /* the limit on the peer's eager bytes is to be reported by a message of its
     * own (CREDIT) */
    bool due;
} psc_flow_t;

static inline void psc_flow_init(psc_flow_t *flow)
{
    *flow = (psc_flow_t){.limit = PSC_CREDIT_INITIAL,
                         .granted = PSC_CREDIT_INITIAL};
}

/* Credit that was not reported to the peer yet. Negative after the window has
 * shrunk: a limit that was reported stays valid. */
static inline int32_t psc_flow_ungranted(const psc_flow_t *flow,
                                         uint32_t window)
{
    return (int32_t)(flow->consumed + window - flow->granted);
}

/* Return the limit for a header that is sent now, and note in `granted` that it
 * was reported. */
static inline uint32_t psc_flow_stamp(psc_flow_t *flow, uint32_t window)
{
    flow->due = false;
    if (psc_flow_ungranted(flow, window) > 0)
        flow->granted = flow->consumed + window;
    return flow->granted;
}

/* Undo psc_flow_stamp, because the header was not sent; `before` is a copy of
 * the flow from before the call. */
static inline void psc_flow_unstamp(psc_flow_t *flow, const psc_flow_t *before)
{
    flow->granted = before->granted;
    flow->due = before->due;
}

/* Store the limit that the peer has reported in a header, if it is higher than
 * the limit known before. Returns true if it is. */
static inline bool psc_flow_heard(psc_flow_t *flow, uint32_t limit)
{
    if ((int32_t)(limit - flow->limit) <= 0)
        return false;
    flow->limit = limit;
    return true;
}

static inline bool psc_flow_has(const psc_flow_t *flow, uint32_t cost)
{
    return (int32_t)(flow->limit - flow->sent) >= (int32_t)cost;
}

/* Account a received message. Returns false if the peer had no credit for
 * it. */
static inline bool psc_flow_spend(psc_flow_t *flow, uint32_t cost)
{
    flow->got += cost;
    return (int32_t)(flow->granted - flow->got) >= 0;
}

/* Allow the peer to send `cost` further eager bytes. Returns true if it has
 * become time to report the new limit to the peer. */
static inline bool psc_flow_return(psc_flow_t *flow, uint32_t cost,
                                   uint32_t window)
{
    flow->consumed += cost;
    if (flow->due || psc_flow_ungranted(flow, window) < (int32_t)(window / 4))
        return false;
    return flow->due = true;
}
