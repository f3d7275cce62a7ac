/* Workers: opening transports, the progress pass, descriptors, counters. */
#include "worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "conn.h"
#include "parts/clock.h"
#include "proto/am.h"
#include "proto/match.h"
#include "proto/rma.h"

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

/* What am_post left meanwhile is done before the lock goes; what it leaves
 * afterwards finds the lock free and is done by am_post itself. */
void psc_worker_leave(psc_worker_t *worker)
{
    while (atomic_load_explicit(&worker->inbox, memory_order_relaxed))
        psc_am_inbox_drain(worker);
    psc_lock_release(&worker->lock);
}

/* ---- life ---- */

static void worker_lists_init(psc_worker_t *worker)
{
    psc_list_t *const lists[] = {
        &worker->conns,       &worker->busy,     &worker->retiring,
        &worker->lane_events, &worker->probes,   &worker->free_reqs,
        &worker->conn_events, &worker->doomed,
        &worker->completions, &worker->messages, &worker->regions};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        psc_list_init(lists[i]);
    for (int i = 0; i < PSC_CONTEXT_BUCKETS; i++)
        psc_list_init(&worker->contexts[i]);
    for (int i = 0; i < PSC_HANDLER_BUCKETS; i++)
        psc_list_init(&worker->handlers[i]);
}

static void worker_close_fds(psc_worker_t *worker)
{
    const int fds[] = {worker->epoll_fd, worker->sleep_fd, worker->fabric_fd,
                       worker->alarm_fd, worker->wake_fd, worker->control_fd};

    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

static int worker_watch(int set, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

static int worker_open_fds(psc_worker_t *worker)
{
    worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    worker->sleep_fd = epoll_create1(EPOLL_CLOEXEC);
    worker->fabric_fd = epoll_create1(EPOLL_CLOEXEC);
    worker->alarm_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    worker->control_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->epoll_fd < 0 || worker->sleep_fd < 0 ||
        worker->fabric_fd < 0 || worker->alarm_fd < 0 || worker->wake_fd < 0 ||
        worker->control_fd < 0 ||
        worker_watch(worker->epoll_fd, worker->alarm_fd) < 0)
        return -1;
    return worker_watch(worker->sleep_fd, worker->wake_fd);
}

psc_worker_t *psc_worker_create(const psc_worker_config_t *config)
{
    psc_worker_t *worker = calloc(1, sizeof *worker);

    if (!worker)
        return NULL;
    worker->config = *config;
    worker->log_fd = -1;
    worker_lists_init(worker);
    if (worker_open_fds(worker) < 0) {
        int error = errno;

        worker_close_fds(worker);
        free(worker);
        errno = error;
        return NULL;
    }
    return worker;
}

static psc_status_t worker_check_ops(const psc_transport_ops_t *ops,
                                     char *reason)
{
    if (ops->abi != PSC_TRANSPORT_ABI || ops->size != sizeof *ops) {
        snprintf(reason, PSC_REASON_MAX,
                 "built for transport ABI %u, this core has %u; rebuild it "
                 "against the installed headers",
                 ops->abi, PSC_TRANSPORT_ABI);
        return PSC_ERR_UNSUPPORTED;
    }
    if (!ops->name || !ops->open || !ops->query || !ops->progress ||
        !ops->close || !ops->stop || !ops->fini || !ops->ep_create ||
        !ops->ep_address || !ops->ep_connect || !ops->ep_close ||
        !ops->ep_stop || !ops->ep_fini || !ops->am_bcopy) {
        snprintf(reason, PSC_REASON_MAX,
                 "the ops table lacks a mandatory function (transport.h)");
        return PSC_ERR_UNSUPPORTED;
    }
    return PSC_OK;
}

/* A capability without its functions would crash later. */
static psc_status_t worker_check_caps(const psc_transport_ops_t *ops,
                                      const psc_iface_attr_t *attr,
                                      char *reason)
{
    const char *lacks = NULL;
    bool rma = attr->caps & (PSC_CAP_PUT | PSC_CAP_GET);

    if (attr->caps & PSC_CAP_AM_SHORT && !ops->am_short)
        lacks = "AM_SHORT needs am_short";
    else if (attr->caps & PSC_CAP_AM_ZCOPY && !ops->am_zcopy)
        lacks = "AM_ZCOPY needs am_zcopy";
    else if (attr->caps & PSC_CAP_PUT && !ops->put)
        lacks = "PUT needs put";
    else if (attr->caps & PSC_CAP_GET && !ops->get)
        lacks = "GET needs get";
    else if (attr->caps & PSC_CAP_PUT && !(attr->caps & PSC_CAP_PUT_REMOTE) &&
             !ops->ep_flush)
        lacks = "PUT without PUT_REMOTE needs ep_flush";
    else if (rma && (!ops->mem_register || !ops->mem_deregister ||
                     !ops->rkey_pack || !ops->rkey_unpack ||
                     !ops->rkey_release))
        lacks = "PUT and GET need memory registration";
    else if (attr->caps & PSC_CAP_EVENT && (!ops->event_fd || !ops->arm))
        lacks = "EVENT needs event_fd and arm";
    else if (attr->caps & PSC_CAP_TAG &&
             (!ops->tag_post || !ops->tag_cancel || !ops->tag_send))
        lacks = "TAG needs tag_post, tag_cancel and tag_send";
    else if (attr->max_bcopy < 1024 || attr->max_iov < 8)
        lacks = "max_bcopy must be at least 1024 and max_iov 8";
    if (!lacks)
        return PSC_OK;
    snprintf(reason, PSC_REASON_MAX, "%s", lacks);
    return PSC_ERR_UNSUPPORTED;
}

/* Every set of descriptors that somebody sleeps on holds the fabrics'. */
static int worker_watch_fabric(psc_worker_t *worker, int fd)
{
    if (worker_watch(worker->epoll_fd, fd) < 0 ||
        worker_watch(worker->sleep_fd, fd) < 0)
        return -1;
    return worker_watch(worker->fabric_fd, fd);
}

static psc_status_t worker_adopt(psc_worker_t *worker, psc_iface_slot_t *slot,
                                 char *reason)
{
    psc_status_t status;

    slot->ops->query(slot->iface, &slot->attr);
    status = worker_check_caps(slot->ops, &slot->attr, reason);
    if (status != PSC_OK)
        return status;
    if (slot->attr.caps & PSC_CAP_EVENT &&
        worker_watch_fabric(worker, slot->ops->event_fd(slot->iface)) < 0) {
        snprintf(reason, PSC_REASON_MAX, "its event descriptor: %s",
                 strerror(errno));
        return PSC_ERR_TRANSPORT;
    }
    return PSC_OK;
}

static int worker_open_locked(psc_worker_t *worker,
                              const psc_transport_ops_t *ops,
                              psc_open_params_t *params)
{
    psc_iface_slot_t *slot = &worker->ifaces[worker->n_ifaces];
    psc_status_t status;

    if (worker->n_ifaces == PSC_IFACES_MAX) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "more than %d transports; switch some off with PSP_<NAME>=0",
                 PSC_IFACES_MAX);
        return PSC_ERR_NO_RESOURCE;
    }
    slot->worker = worker;
    slot->ops = ops;
    slot->every = 1;
    params->user = slot;
    status = ops->open(params, &slot->iface);
    if (status != PSC_OK)
        return status;
    status = worker_adopt(worker, slot, params->reason);
    if (status != PSC_OK) {
        ops->close(slot->iface);
        ops->fini(slot->iface);
        return status;
    }
    return worker->n_ifaces++;
}

int psc_worker_open(psc_worker_t *worker, uintptr_t ops_address,
                    const psc_setting_t *settings, uint32_t n_settings,
                    char *reason)
{
    const psc_transport_ops_t *ops = (const psc_transport_ops_t *)ops_address;
    psc_open_params_t params = {.abi = PSC_TRANSPORT_ABI,
                                .worker = worker->config.index,
                                .up = &psc_lane_upcalls,
                                .settings = settings,
                                .n_settings = n_settings,
                                .reason = reason};
    int result;

    reason[0] = 0;
    result = worker_check_ops(ops, reason);
    if (result != PSC_OK)
        return result;
    result = psc_worker_enter(worker, 0);
    if (result != PSC_OK)
        return result;
    result = worker_open_locked(worker, ops, &params);
    psc_worker_leave(worker);
    return result;
}

void psc_worker_query(psc_worker_t *worker, int iface, psc_iface_attr_t *attr_p)
{
    *attr_p = worker->ifaces[iface].attr;
}

/* Lanes that have said goodbye get this long to be rid of the fabric. */
#define WORKER_STOP_NS 2000000000

static void worker_stop(psc_worker_t *worker)
{
    int64_t deadline = psc_clock_deadline(WORKER_STOP_NS);

    psc_list_for_each(conn, &worker->conns, psc_conn_t, link)
        psc_conn_fail_locked(conn, PSC_ERR_CLOSED);
    while (!psc_list_empty(&worker->retiring) && psc_clock_now() < deadline) {
        if (psc_worker_progress_locked(worker, true) == 0)
            usleep(100);
    }
    psc_lane_progress_retiring(worker, true);
}

static void worker_close_ifaces(psc_worker_t *worker)
{
    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        slot->ops->close(slot->iface);
        for (int tries = 0; tries < 1000; tries++) {
            if (slot->ops->stop(slot->iface) != PSC_INPROGRESS)
                break;
            slot->ops->progress(slot->iface);
        }
        slot->ops->fini(slot->iface);
    }
}

void psc_worker_destroy(psc_worker_t *worker)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return; /* forked: the parent's, whose descriptors we only inherited */
    worker_stop(worker);
    psc_rma_worker_destroy(worker);
    psc_am_worker_destroy(worker);
    psc_conn_destroy_all(worker);
    worker_close_ifaces(worker);
    psc_match_worker_destroy(worker);
    psc_req_pool_destroy(worker);
    worker_close_fds(worker);
    free(worker);
}

void psc_worker_forked(psc_worker_t *worker)
{
    atomic_store(&worker->forked, true);
}

/* ---- progress ---- */

/* An interface that costs a system call to poll is polled now and then while a
 * cheaper one has lanes too. */
#define WORKER_CHEAP_NS 100
#define WORKER_RARELY 16u

void psc_worker_pace(psc_worker_t *worker)
{
    bool cheap = false;

    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        cheap |= slot->lanes > 0 && slot->attr.poll_ns <= WORKER_CHEAP_NS;
    }
    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        slot->every = cheap && slot->attr.poll_ns > WORKER_CHEAP_NS
                          ? WORKER_RARELY
                          : 1;
    }
}

unsigned psc_worker_pass(psc_worker_t *worker, bool all)
{
    unsigned n = 0;

    worker->pass++;
    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        if (all || (slot->lanes > 0 && (worker->pass & (slot->every - 1)) == 0))
            n += slot->ops->progress(slot->iface);
    }
    if (!psc_list_empty(&worker->busy)) {
        psc_list_for_each(conn, &worker->busy, psc_conn_t, busy_link)
            n += psc_conn_flush(conn);
    }
    if (!psc_list_empty(&worker->retiring))
        psc_lane_progress_retiring(worker, false);
    if (!psc_list_empty(&worker->doomed))
        psc_conn_reap(worker);
    worker->restless = n > 0;
    return n;
}

/* What a pass finds is gone from the descriptor that another thread may be
 * sleeping on, and what was armed is used up: it has to look again. */
unsigned psc_worker_progress_locked(psc_worker_t *worker, bool all)
{
    unsigned n = psc_worker_pass(worker, all);

    psc_wait_kick_poller(worker);
    return n;
}

unsigned psc_worker_progress(psc_worker_t *worker)
{
    unsigned n;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    n = psc_worker_progress_locked(worker, true);
    psc_worker_leave(worker);
    return n;
}

int psc_worker_fd(psc_worker_t *worker)
{
    return worker->epoll_fd;
}

void psc_worker_clear(int fd)
{
    uint64_t ignored;

    while (read(fd, &ignored, sizeof ignored) > 0)
        ;
}

static psc_status_t worker_arm_fabric_locked(psc_worker_t *worker)
{
    if (worker->restless || atomic_load(&worker->inbox))
        return PSC_ERR_NO_RESOURCE;
    for (int i = 0; i < worker->n_ifaces; i++) {
        psc_iface_slot_t *slot = &worker->ifaces[i];

        if (!(slot->attr.caps & PSC_CAP_EVENT)) {
            if (slot->lanes > 0)
                return PSC_ERR_NO_RESOURCE;
            continue;
        }
        if (slot->ops->arm(slot->iface) != PSC_OK)
            return PSC_ERR_NO_RESOURCE;
    }
    return PSC_OK;
}

psc_status_t psc_worker_arm_locked(psc_worker_t *worker)
{
    if (atomic_load(&worker->n_completions) ||
        atomic_load(&worker->n_messages))
        return PSC_ERR_NO_RESOURCE;
    return worker_arm_fabric_locked(worker);
}

int psc_worker_fabric_fd(psc_worker_t *worker)
{
    return worker->fabric_fd;
}

int psc_worker_arm_fabric(psc_worker_t *worker)
{
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = worker_arm_fabric_locked(worker);
    psc_worker_leave(worker);
    return status;
}

int psc_worker_arm(psc_worker_t *worker)
{
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    psc_worker_clear(worker->alarm_fd);
    atomic_store(&worker->wait.armed, 1); /* before the look */
    status = psc_worker_arm_locked(worker);
    psc_worker_leave(worker);
    return status;
}

void psc_worker_wake(psc_worker_t *worker)
{
    if (atomic_load(&worker->forked))
        return;
    atomic_fetch_add(&worker->wait.wakes, 1);
    psc_wait_notify(worker);
}

/* ---- news for the control thread ---- */

void psc_worker_signal(int fd)
{
    uint64_t one = 1;

    if (write(fd, &one, sizeof one) < 0 && errno != EAGAIN)
        abort(); /* an eventfd of ours fails only if it was closed */
}

void psc_worker_control_signal(psc_worker_t *worker)
{
    psc_worker_signal(worker->control_fd);
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

static void worker_copy_counters(psc_worker_t *worker,
                                 const psc_counters_t *counters,
                                 uint64_t *values)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    memcpy(values, counters->value, sizeof counters->value);
    psc_worker_leave(worker);
}

void psc_worker_counters(psc_worker_t *worker, uint64_t *values)
{
    worker_copy_counters(worker, &worker->counters, values);
}

void psc_conn_counters(psc_conn_t *conn, uint64_t *values)
{
    worker_copy_counters(conn->worker, &conn->counters, values);
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
