/* Creation and end of a worker. This file stands above the protocols, as
 * api_table.c does: it registers them with the worker. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "pscompy/transport/kit/clock.h"
#include "conn.h"
#include "worker.h"
#include "lane.h"
#include "lost_ranks.h"
#include "memory/memory.h"
#include "progress/progress.h"
#include "../proto/proto.h"
#include "../proto/rma.h"

/* ---- creation ---- */

static void worker_close_fds(psc_worker_t *worker)
{
    psc_sleepers_close(worker);
    psc_control_events_close(&worker->control_events);
}

static int worker_open_fds(psc_worker_t *worker)
{
    int control_events = psc_control_events_open(&worker->control_events);

    return psc_sleepers_open(worker) < 0 ? -1 : control_events;
}

psc_worker_t *psc_worker_create(const psc_worker_config_t *config)
{
    psc_worker_t *worker = calloc(1, sizeof *worker);

    if (!worker)
        return NULL;
    worker->config = *config;
    worker->up = &psc_protocols;
    psc_list_init(&worker->conns);
    psc_list_init(&worker->busy);
    psc_ends_init(&worker->ends);
    psc_runs_init(&worker->runs);
    psc_requests_init(&worker->requests, worker);
    psc_interfaces_pace(&worker->interfaces, config->spin_ns);
    psc_protocols_init(worker);
    worker->memory.pool = psc_pool_create(worker, config->pool_max);
    if (worker_open_fds(worker) < 0 || !worker->memory.pool) {
        int error = errno;

        if (worker->memory.pool)
            psc_pool_detach(worker->memory.pool);
        worker_close_fds(worker);
        free(worker);
        errno = error;
        return NULL;
    }
    return worker;
}

/* ---- end ---- */

/* How long psc_worker_destroy waits until the fabric has released all retiring
 * lanes. */
#define WORKER_STOP_NS 2000000000

/* Sleep until a fabric has something to do, for at most a millisecond. If the
 * fabrics cannot be armed, do not sleep. A fabric that was armed checks
 * everything when it is polled next. */
static void worker_rest(psc_worker_t *worker)
{
    psc_sleeper_t *self = &worker->wait.poller;
    struct epoll_event event;

    psc_sleeper_look(self);
    if (psc_sleeper_try(self, PSC_WAKE_SPENT) == PSC_OK)
        epoll_wait(self->set, &event, 1, 1);
    psc_sleeper_disarm(self);
}

static unsigned worker_stop(psc_worker_t *worker)
{
    int64_t deadline = psc_clock_deadline(WORKER_STOP_NS);
    unsigned reached;

    psc_list_for_each(conn, &worker->conns, psc_conn_t, link)
        psc_conn_fail_locked(conn, PSC_ERR_CLOSED);
    while (!psc_list_empty(&worker->ends.retiring) &&
           psc_clock_now() < deadline) {
        if (psc_worker_progress_locked(worker, PSC_PASS_ALL) == 0)
            worker_rest(worker);
    }
    reached = psc_access_count(worker) + psc_regions_revoke(worker);
    psc_lane_progress_retiring(worker, true);
    return reached;
}

unsigned psc_worker_destroy(psc_worker_t *worker)
{
    unsigned reached;

    psc_thread_stop(worker);
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0; /* a forked child: the worker belongs to the parent */
    reached = worker_stop(worker);
    psc_protocols_stop(worker);
    psc_conn_destroy_all(worker);
    psc_iface_close_all(worker);
    psc_protocols_destroy(worker);
    if (worker->runs.engine)
        worker->runs.engine->worker_ends(worker);
    psc_lost_ranks_clear(worker);
    psc_requests_destroy(&worker->requests);
    worker_close_fds(worker);
    free(worker);
    return reached;
}

void psc_worker_forked(psc_worker_t *worker)
{
    atomic_store(&worker->memory.pool->forked, true);
    atomic_store(&worker->forked, true);
}
