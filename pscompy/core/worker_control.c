/* The control plane's operations on workers, which control.h declares. */
#include <string.h>

#include "worker.h"

int psc_worker_retiring(psc_worker_t *worker)
{
    bool retiring;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    retiring = !psc_list_empty(&worker->ends.retiring);
    psc_worker_leave(worker);
    return retiring;
}

int psc_worker_holding(psc_worker_t *worker, uint32_t *passes_p,
                       int *attended_p)
{
    psc_control_events_t *control_events = &worker->control_events;
    bool holding;

    *passes_p = 0;
    *attended_p = atomic_load(&worker->wait.polling) != 0;
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    holding = control_events->holding_reported = control_events->n_holding > 0;
    *passes_p = worker->pass;
    psc_worker_leave(worker);
    return holding;
}

int psc_worker_control_fd(psc_worker_t *worker)
{
    return worker->control_events.fd;
}

static int worker_take(psc_worker_t *worker,
                       int (*take)(psc_control_events_t *control_events,
                                   psc_control_event_t *events, int max),
                       psc_control_event_t *events, int max)
{
    int n;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    n = take(&worker->control_events, events, max);
    psc_worker_leave(worker);
    return n;
}

int psc_worker_control_poll(psc_worker_t *worker, psc_control_event_t *events,
                            int max)
{
    return worker_take(worker, psc_control_events_take, events, max);
}

int psc_worker_callers_poll(psc_worker_t *worker, psc_control_event_t *events,
                            int max)
{
    return worker_take(worker, psc_control_events_take_callers, events, max);
}

int psc_worker_calls_poll(psc_worker_t *worker, psc_control_event_t *events,
                          int max)
{
    return worker_take(worker, psc_control_events_take_quiet, events, max);
}

void psc_worker_log_to(psc_worker_t *worker, int fd, int level)
{
    worker->control_events.log_fd = fd;
    worker->control_events.log_level = level;
}

void psc_worker_secret(psc_worker_t *worker, const uint8_t *secret)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    memcpy(worker->memory.secret, secret, sizeof worker->memory.secret);
    psc_worker_leave(worker);
}

/* ---- counters ---- */

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
