/* Creation and end of a worker. This file stands above the protocols, as
 * api_table.c does: it registers them with the worker. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pscompy/transport/kit/clock.h"
#include "conn.h"
#include "iface.h"
#include "lane.h"
#include "memory/access.h"
#include "memory/pool.h"
#include "progress/pace.h"
#include "progress/progress.h"
#include "progress/sleep.h"
#include "progress/thread.h"
#include "proto/protocols.h"
#include "proto/region.h"
#include "request.h"
#include "worker.h"

/* ---- creation ---- */

static void worker_lists_init(psc_worker_t *worker)
{
    psc_list_t *const lists[] = {
        &worker->conns,       &worker->busy,   &worker->retiring,
        &worker->lane_events, &worker->probes, &worker->free_reqs,
        &worker->conn_events, &worker->doomed, &worker->revoking,
        &worker->messages,    &worker->offers, &worker->regions};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        psc_list_init(lists[i]);
    for (int i = 0; i < PSC_CONTEXT_BUCKETS; i++)
        psc_list_init(&worker->contexts[i]);
    for (int i = 0; i < PSC_HANDLER_BUCKETS; i++)
        psc_list_init(&worker->handlers[i]);
}

static void worker_close_fds(psc_worker_t *worker)
{
    psc_sleepers_close(worker);
    if (worker->control_fd >= 0)
        close(worker->control_fd);
}

static int worker_open_fds(psc_worker_t *worker)
{
    worker->control_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (psc_sleepers_open(worker) < 0 || worker->control_fd < 0)
        return -1;
    return 0;
}

psc_worker_t *psc_worker_create(const psc_worker_config_t *config)
{
    psc_worker_t *worker = calloc(1, sizeof *worker);

    if (!worker)
        return NULL;
    worker->config = *config;
    worker->up = &psc_protocols;
    worker->log_fd = -1;
    psc_worker_pace(worker);
    worker_lists_init(worker);
    worker->pool = psc_pool_create(worker, config->pool_max);
    if (worker_open_fds(worker) < 0 || !worker->pool) {
        int error = errno;

        if (worker->pool)
            psc_pool_detach(worker->pool);
        worker_close_fds(worker);
        free(worker);
        errno = error;
        return NULL;
    }
    return worker;
}

void psc_worker_secret(psc_worker_t *worker, const uint8_t *secret)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    memcpy(worker->secret, secret, sizeof worker->secret);
    psc_worker_leave(worker);
}

/* ---- end ---- */

/* Time for retiring lanes to be released by the fabric. */
#define WORKER_STOP_NS 2000000000

static unsigned worker_stop(psc_worker_t *worker)
{
    int64_t deadline = psc_clock_deadline(WORKER_STOP_NS);
    unsigned reached;

    psc_list_for_each(conn, &worker->conns, psc_conn_t, link)
        psc_conn_fail_locked(conn, PSC_ERR_CLOSED);
    while (!psc_list_empty(&worker->retiring) && psc_clock_now() < deadline) {
        if (psc_worker_progress_locked(worker, PSC_PASS_ALL) == 0)
            usleep(100);
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
        return 0; /* forked: the worker is the parent's */
    reached = worker_stop(worker);
    psc_protocols_stop(worker);
    psc_conn_destroy_all(worker);
    psc_iface_close_all(worker);
    psc_protocols_destroy(worker);
    psc_req_pool_destroy(worker);
    worker_close_fds(worker);
    free(worker);
    return reached;
}

void psc_worker_forked(psc_worker_t *worker)
{
    atomic_store(&worker->pool->forked, true);
    atomic_store(&worker->forked, true);
}
