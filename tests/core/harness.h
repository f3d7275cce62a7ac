/* Two workers in one process, joined by real transports, driven by hand: what
 * the core's own cases need. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pscompy/core/control.h"
#include "pscompy/core/counters.h"
#include "pscompy/transport/kit/clock.h"
#include "tests/cases.h"

#define PATIENCE_NS 60000000000ll
#define CONTEXT PSC_CONTEXT_PLAIN

extern const psc_api_t *api;

typedef struct side {
    psc_worker_t *worker;
    psc_conn_t *conn;
    int iface;
} side_t;

typedef struct pair {
    side_t a, b;
} pair_t;

void fail_at(const char *file, int line, const char *what)
    __attribute__((noreturn));
#define check(condition)                                                       \
    do {                                                                       \
        if (!(condition))                                                      \
            fail_at(__FILE__, __LINE__, #condition);                           \
    } while (0)

typedef struct options {
    psc_rndv_scheme_t scheme;
    uint64_t eager_max, unexpected_max;
    uint32_t rts_max;
    uint64_t tuple_min; /* set by the argument TUPLE_MIN */
    bool tuple_am;     /* set by the argument TUPLE_AM */
    uint64_t pool_max;
    int64_t spin_ns; /* 0: 50 us */
    bool idle_iface; /* another interface is opened first, and not used */
    /* bit i: lane i of pair_join_by is of another interface, which copies fewer
     * bytes, and cannot put and get (unlike_b: only b's cannot) */
    uint8_t unlike;
    bool unlike_b;
} options_t;

extern options_t options; /* of the next pair_open */
/* One side alone, with a worker of its own; `index` is the worker's. */
void side_open(side_t *side, uint32_t index);
void *side_close(void *side);
void pair_open(pair_t *pair);
void pair_close(pair_t *pair);
/* One more interface of a's worker: its index, or an error and why. */
int pair_open_more(pair_t *pair, uintptr_t ops, char *reason);
/* The transport under test. Only harness.c depends on it, so that all other
 * sources are compiled once for all transports. */
uintptr_t harness_transport(void);
/* Whether both ends must have the same worker. */
bool harness_one_worker(void);
/* One more connection between the same two workers. */
void pair_join(pair_t *pair, psc_conn_t **a, psc_conn_t **b);
/* Lanes between the same two workers that are up, and a connection over one. */
void pair_lanes(pair_t *pair, psc_lane_t **a, psc_lane_t **b);
/* The transport of this lane, if it is up, reports that the lane has failed. */
void lane_fail(psc_lane_t *lane);
/* The same pair with another interface on each side; see options.unlike. */
pair_t pair_unlike(const pair_t *pair);
psc_conn_t *side_install(side_t *side, psc_lane_t *lane);
#define LANES 3 /* most lanes of one connection */
void pair_join_by(pair_t *pair, uint32_t n_lanes, psc_conn_t **a,
                  psc_conn_t **b);
void pair_progress(pair_t *pair);
/* The peer reads nothing: send until neither the lane nor its fabric takes even
 * an empty message. */
void lane_fills(psc_lane_t *lane);
uint64_t count(psc_worker_t *worker, psc_counter_t counter);

void fill(void *buffer, size_t len, unsigned seed);
bool filled(const void *buffer, size_t len, unsigned seed);

/* Post; a request that came about must be waited for. */
psc_request_t *post_send(side_t *side, const void *buffer, size_t len,
                         int32_t tag);
psc_request_t *post_recv(side_t *side, psc_conn_t *source, void *buffer,
                         size_t len, int32_t tag, psc_result_t *result);
static inline bool done(psc_request_t *request)
{
    return psc_request_state(request) == PSC_REQUEST_DONE;
}
/* Both sides progress until it is done; its result; it is freed. */
psc_result_t finish(pair_t *pair, psc_request_t *request);
/* Waits until a message has been sent; NULL: it was sent at once. */
void sent(pair_t *pair, psc_request_t *send);
void settle(pair_t *pair); /* until nothing moves for a while */

#define until(pair, condition)                                                 \
    do {                                                                       \
        int64_t until_ = psc_clock_now() + PATIENCE_NS;                        \
        while (!(condition)) {                                                 \
            check(psc_clock_now() < until_);                                   \
            pair_progress(pair);                                               \
        }                                                                      \
    } while (0)
