/* Data for the control thread: events of lanes and connections, counters, and
 * lines for its log. */
#include "events.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "descriptor.h"
#include "worker.h"

/* ---- events ---- */

void psc_worker_control_signal(psc_worker_t *worker)
{
    psc_descriptor_signal(worker->control_fd);
}

int psc_worker_retiring(psc_worker_t *worker)
{
    bool retiring;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    retiring = !psc_list_empty(&worker->retiring);
    psc_worker_leave(worker);
    return retiring;
}

void psc_worker_count_holding(psc_worker_t *worker, int change)
{
    worker->n_holding += (uint32_t)change;
    if (worker->n_holding == 0 || worker->holding_told)
        return;
    worker->holding_told = true;
    psc_worker_control_signal(worker);
}

int psc_worker_holding(psc_worker_t *worker, uint32_t *passes_p)
{
    bool holding;

    *passes_p = 0;
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    holding = worker->holding_told = worker->n_holding > 0;
    *passes_p = worker->pass;
    psc_worker_leave(worker);
    return holding;
}

int psc_worker_control_fd(psc_worker_t *worker)
{
    return worker->control_fd;
}

static bool worker_next_event(psc_worker_t *worker, psc_control_event_t *event)
{
    psc_link_t *link = psc_list_pop(&worker->lane_events);

    if (link) {
        psc_lane_t *lane = psc_container_of(link, psc_lane_t, event_link);

        lane->event = false;
        *event = (psc_control_event_t){PSC_CONTROL_LANE, lane->id};
        return true;
    }
    link = psc_list_pop(&worker->conn_events);
    if (link) {
        psc_conn_t *conn = psc_container_of(link, psc_conn_t, event_link);

        conn->event = false;
        *event = (psc_control_event_t){PSC_CONTROL_CONN, conn->id};
        return true;
    }
    return false;
}

int psc_worker_control_poll(psc_worker_t *worker, psc_control_event_t *events,
                            int max)
{
    uint64_t ignored;
    int n = 0;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    while (n < max && worker_next_event(worker, &events[n]))
        n++;
    if (n < max && read(worker->control_fd, &ignored, sizeof ignored) < 0 &&
        errno != EAGAIN)
        n = 0;
    psc_worker_leave(worker);
    return n;
}

/* ---- counters and log ---- */

static const char *const counter_names[PSC_COUNTER_COUNT] = {
#define PSC_COUNTER_NAME(name) #name,
    PSC_COUNTER_LIST(PSC_COUNTER_NAME)
#undef PSC_COUNTER_NAME
};

int psc_counter_count(void)
{
    return PSC_COUNTER_COUNT;
}

const char *psc_counter_name(int index)
{
    return counter_names[index];
}

void psc_worker_counters(psc_worker_t *worker, uint64_t *values)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    memcpy(values, worker->counters.value, sizeof worker->counters.value);
    psc_worker_leave(worker);
}

void psc_conn_counters(psc_conn_t *conn, uint64_t *values)
{
    static const psc_counters_t none;
    const psc_counters_t *counters;

    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return;
    counters =
        conn->counters == &conn->worker->nobodys ? &none : conn->counters;
    memcpy(values, counters->value, sizeof counters->value);
    psc_worker_leave(conn->worker);
}

uint32_t psc_conn_fabric_counters(psc_conn_t *conn, psc_counted_t *counters,
                                  uint32_t room)
{
    uint32_t n = 0;

    if (psc_worker_enter(conn->worker, 0) != PSC_OK)
        return 0;
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        const psc_lane_t *lane = conn->lanes[i];

        if (lane->ep && lane->slot->ops->ep_counters)
            n += lane->slot->ops->ep_counters(lane->ep, counters + n, room - n);
    }
    psc_worker_leave(conn->worker);
    return n;
}

void psc_worker_log_to(psc_worker_t *worker, int fd, int level)
{
    worker->log_fd = fd;
    worker->log_level = level;
}

void psc_worker_log(psc_worker_t *worker, int level, const char *line)
{
    char text[PSC_REASON_MAX + 32];
    int len;

    if (worker->log_fd < 0 || level > worker->log_level)
        return;
    len = snprintf(text, sizeof text, "%d %s\n", level, line);
    if (len > (int)sizeof text - 1)
        len = (int)sizeof text - 1;
    text[len - 1] = '\n';
    if (write(worker->log_fd, text, (size_t)len) < 0)
        worker->log_lost++;
}
