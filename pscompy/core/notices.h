/* Reports of the core for the control thread: notices of lanes and connections
 * that have changed, whether interfaces hold sent messages back, and lines for
 * the log. With the worker's lock held; control.h has the functions by which
 * the control thread reads notices. */
#pragma once

#include "control.h"
#include "pscompy/transport/kit/list.h"

/* The notice that a lane or connection, its owner, has changed. It is in a list
 * from the change until the control thread reads it. */
typedef struct psc_notice {
    psc_link_t link;
    psc_control_event_t event;
    /* listed in `quiet`: it waits until the control thread calls
     * psc_worker_calls_poll */
    bool quiet;
    /* the owner is being destroyed, so the notice is never posted again */
    bool ended;
} psc_notice_t;

typedef struct psc_notices {
    /* eventfd, readable while a notice in `posted` or a change of n_holding is
     * to be read */
    int fd;
    psc_list_t posted;
    /* notices for psc_worker_calls_poll, which do not make fd readable */
    psc_list_t quiet;
    /* notices of ranks that call this rank and to which there is no connection
     * (psc_worker_callers_poll) */
    psc_list_t callers;
    /* number of interfaces that hold sent messages back, plus the calls in
     * flight, plus 1 if `callers` is not empty */
    uint32_t n_holding;
    /* the control thread was notified that n_holding is not 0 */
    bool holding_reported;
    int log_fd, log_level;
} psc_notices_t;

/* Returns 0, or -1 with errno. psc_notices_close may be called in either
 * case. */
int psc_notices_open(psc_notices_t *notices);
void psc_notices_close(psc_notices_t *notices);
void psc_notice_init(psc_notice_t *notice, psc_control_kind_t kind,
                     uint64_t id);
void psc_notice_post(psc_notices_t *notices, psc_notice_t *notice);
/* Add a rank that calls this rank, and to which there is no connection, to
 * `callers`. The control thread does not act at once, because most programs
 * soon make and use this connection, which answers the call. */
psc_status_t psc_notice_caller(psc_notices_t *notices, int rank);
int psc_notices_take_callers(psc_notices_t *notices,
                             psc_control_event_t *events, int max);
/* Post the notice; if its `quiet` is set, without making fd readable. */
void psc_notice_post_quietly(psc_notices_t *notices, psc_notice_t *notice);
/* The notice's owner is being destroyed: take the notice out of its list, and
 * never post it again. */
void psc_notice_end(psc_notice_t *notice);
/* Take out the earliest posted notices. Returns their number, at most `max`. */
int psc_notices_take(psc_notices_t *notices, psc_control_event_t *events,
                     int max);
/* As psc_notices_take, for notices that were posted quietly. */
int psc_notices_take_quiet(psc_notices_t *notices, psc_control_event_t *events,
                           int max);
/* Make fd readable although no notice is posted, so that the control thread
 * wakes and looks. */
void psc_notices_ring(psc_notices_t *notices);
/* Count the interfaces that hold sent messages back, and the calls in flight
 * (psc_notices_t.n_holding); change is +1 or -1. */
void psc_notices_hold(psc_notices_t *notices, int change);
void psc_notices_log(const psc_notices_t *notices, int level, const char *line);
