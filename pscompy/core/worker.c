/* Workers: their lock, their life, their descriptors. */
#include "worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "memory/access.h"
#include "pscompy/transport/kit/clock.h"
#include "memory/pool.h"
#include "upward.h"

/* ---- the lock ---- */

psc_status_t psc_worker_enter(psc_worker_t *worker, uint32_t flags)
{
    if (atomic_load_explicit(&worker->forked, memory_order_relaxed))
        return PSC_ERR_FORKED;
    if (psc_lock_try(&worker->lock))
        return PSC_OK;
    if (flags & PSC_FLAG_TRY)
        return PSC_ERR_NO_RESOURCE;
    psc_lock_acquire(&worker->lock);
    return PSC_OK;
}

static void worker_read_mail(psc_worker_t *worker)
{
    atomic_store(&worker->mail, 0); /* before reading */
    psc_proto_inbox_drain(worker);
    psc_sleepers_bury(worker);
    psc_wake(worker, PSC_WAKE_NEWS | PSC_WAKE_SPENT);
}

/* What others left meanwhile, since they could not have the lock, is done
 * before it goes; and what they left just before it went, too. */
void psc_worker_leave(psc_worker_t *worker)
{
    do {
        while (atomic_load(&worker->mail))
            worker_read_mail(worker);
        psc_lock_release(&worker->lock);
    } while (atomic_load(&worker->mail) && psc_lock_try(&worker->lock));
}

void psc_worker_mail(psc_worker_t *worker)
{
    atomic_store(&worker->mail, 1);
    if (psc_lock_try(&worker->lock))
        psc_worker_leave(worker);
}

static void worker_lists_init(psc_worker_t *worker)
{
    psc_list_t *const lists[] = {
        &worker->conns,       &worker->busy,     &worker->retiring,
        &worker->lane_events, &worker->probes,   &worker->free_reqs,
        &worker->conn_events, &worker->doomed,   &worker->revoking,
        &worker->messages,    &worker->offers,
        &worker->regions};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        psc_list_init(lists[i]);
    for (int i = 0; i < PSC_CONTEXT_BUCKETS; i++)
        psc_list_init(&worker->contexts[i]);
    for (int i = 0; i < PSC_HANDLER_BUCKETS; i++)
        psc_list_init(&worker->handlers[i]);
}

void psc_worker_secret(psc_worker_t *worker, const uint8_t *secret)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    memcpy(worker->secret, secret, sizeof worker->secret);
    psc_worker_leave(worker);
}

/* ---- descriptors ---- */

void psc_worker_signal(int fd)
{
    uint64_t one = 1;

    if (write(fd, &one, sizeof one) < 0 && errno != EAGAIN)
        abort(); /* an eventfd of ours fails only if it was closed */
}

void psc_worker_clear(int fd)
{
    uint64_t ignored;

    if (read(fd, &ignored, sizeof ignored) < 0 && errno != EAGAIN)
        abort(); /* as above */
}

int psc_worker_watch(int set, int fd, uint32_t events, uint32_t ifaces)
{
    struct epoll_event event = {.events = events, .data.u32 = ifaces};

    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
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

/* ---- life ---- */

psc_worker_t *psc_worker_create(const psc_worker_config_t *config)
{
    psc_worker_t *worker = calloc(1, sizeof *worker);

    if (!worker)
        return NULL;
    worker->config = *config;
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

/* Lanes that have said goodbye get this long to be rid of the fabric. */
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
    reached = psc_access_count(worker) + psc_proto_regions_revoke(worker);
    psc_lane_progress_retiring(worker, true);
    return reached;
}

unsigned psc_worker_destroy(psc_worker_t *worker)
{
    unsigned reached;

    psc_thread_stop(worker);
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0; /* forked: the parent's, we only inherited descriptors */
    reached = worker_stop(worker);
    psc_proto_worker_stop(worker);
    psc_conn_destroy_all(worker);
    psc_iface_close_all(worker);
    psc_proto_worker_destroy(worker);
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
