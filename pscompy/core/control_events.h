/* Reports of the core for the control thread: control events of lanes and
 * connections that have changed, whether interfaces hold sent messages back,
 * and lines for the log. With the worker's lock held; control.h has the
 * functions by which the control thread reads control events. */
#pragma once

#include "control.h"
#include "pscompy/transport/kit/list.h"

/* The control event that a lane or connection, its owner, has changed. It is in
 * a list from the change until the control thread reads it. */
typedef struct psc_event_slot {
    psc_link_t link;
    psc_control_event_t event;
    /* listed in `quiet`: it waits until the control thread calls
     * psc_worker_calls_poll */
    bool quiet;
    /* the owner is being destroyed, so the control event is never posted again
     */
    bool ended;
} psc_event_slot_t;

typedef struct psc_control_events {
    /* eventfd, readable while a control event in `posted` or a change of
     * n_holding is to be read */
    int fd;
    psc_list_t posted;
    /* control events for psc_worker_calls_poll, which do not make fd readable
     */
    psc_list_t quiet;
    /* control events of ranks that call this rank and to which there is no
     * connection (psc_worker_callers_poll) */
    psc_list_t callers;
    /* number of interfaces that hold sent messages back, plus the calls in
     * flight, plus 1 if `callers` is not empty */
    uint32_t n_holding;
    /* the control thread was notified that n_holding is not 0 */
    bool holding_reported;
    int log_fd, log_level;
} psc_control_events_t;

/* Returns 0, or -1 with errno. psc_control_events_close may be called in either
 * case. */
int psc_control_events_open(psc_control_events_t *control_events);
void psc_control_events_close(psc_control_events_t *control_events);
void psc_event_slot_init(psc_event_slot_t *slot, psc_control_kind_t kind,
                         uint64_t id);
void psc_control_event_post(psc_control_events_t *control_events,
                            psc_event_slot_t *slot);
/* Add a rank that calls this rank, and to which there is no connection, to
 * `callers`. The control thread does not act at once, because most programs
 * soon make and use this connection, which answers the call. */
psc_status_t psc_control_events_caller(psc_control_events_t *control_events,
                                       int rank);
int psc_control_events_take_callers(psc_control_events_t *control_events,
                                    psc_control_event_t *events, int max);
/* Post the slot; if its `quiet` is set, without making fd readable. */
void psc_control_event_post_quietly(psc_control_events_t *control_events,
                                    psc_event_slot_t *slot);
/* The control event's owner is being destroyed: take the control event out of
 * its list, and never post it again. */
void psc_event_slot_end(psc_event_slot_t *slot);
/* Take out the earliest posted control events. Returns their number, at most
 * `max`. */
int psc_control_events_take(psc_control_events_t *control_events,
                            psc_control_event_t *events, int max);
/* As psc_control_events_take, for control events that were posted quietly. */
int psc_control_events_take_quiet(psc_control_events_t *control_events,
                                  psc_control_event_t *events, int max);
/* Make fd readable although no control event is posted, so that the control
 * thread wakes and looks. */
void psc_control_events_ring(psc_control_events_t *control_events);
/* Count the interfaces that hold sent messages back, and the calls in flight
 * (psc_control_events_t.n_holding); change is +1 or -1. */
void psc_control_events_hold(psc_control_events_t *control_events, int change);
void psc_control_events_log(const psc_control_events_t *control_events,
                            int level, const char *line);
