/* The sources of events: descriptors of one epoll set, which becomes readable
 * when a peer writes to the doorbell (a pipe of this process), connects, or
 * ends, and when the timer ticks. */
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "shm.h"
#include "pscompy/transport/kit/restart.h"

/* the timer's period while n_ticking > 0 */
#define SHM_TICK_NS 10000000
/* the timer's period while it runs only to give unused pages of rings back to
 * the system; a page is given back after one or two periods */
#define SHM_RELEASE_NS 100000000
#define SHM_EVENTS_MAX 16

/* ---- sources ---- */

psc_status_t shm_source_watch(int set, shm_source_t *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

    source->set = set;
    if (epoll_ctl(set, EPOLL_CTL_ADD, source->fd, &event) != 0)
        return PSC_ERR_NO_MEMORY;
    return PSC_OK;
}

void shm_source_unwatch(shm_source_t *source)
{
    epoll_ctl(source->set, EPOLL_CTL_DEL, source->fd, NULL);
}

/* The descriptor is removed from the epoll set explicitly: a forked child may
 * hold a copy of the descriptor, and then close() would not end the watch. */
void shm_source_close(shm_source_t *source)
{
    if (source->fd < 0)
        return;
    shm_source_unwatch(source);
    close(source->fd);
    source->fd = -1;
}

/* ---- doorbell and timer ---- */

int shm_pipe_open(void)
{
    char path[32];
    int ends[2], fd;

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    fd = PSC_RESTART(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK));
    close(ends[0]);
    close(ends[1]);
    return fd;
}

void shm_source_drain(const shm_source_t *source)
{
    uint64_t counts[64];

    (void)!PSC_RESTART(read(source->fd, counts, sizeof counts));
}

static void shm_doorbell_ready(shm_source_t *self, uint32_t events)
{
    shm_iface_t *iface = psc_container_of(self, shm_iface_t, doorbell);

    (void)events;
    shm_source_drain(self);
    iface->mail = true;
}

static void shm_peers_ready(shm_source_t *self, uint32_t events)
{
    (void)events;
    shm_sources_poll(self->fd);
}

/* Writes to the peer's doorbell, a pipe. If the pipe is full the write fails,
 * but then the peer has been woken anyway. */
void shm_doorbell_ring(int doorbell)
{
    const uint8_t one = 1;

    (void)!PSC_RESTART(write(doorbell, &one, sizeof one));
}

static void shm_timer_set(const shm_iface_t *iface)
{
    struct itimerspec period = {0};

    if (iface->n_ticking > 0)
        period.it_value.tv_nsec = SHM_TICK_NS;
    else if (iface->releasing)
        period.it_value.tv_nsec = SHM_RELEASE_NS;
    period.it_interval = period.it_value;
    timerfd_settime(iface->timer.fd, 0, &period, NULL);
}

/* Adds `change` (+1 or -1) to n_ticking. While n_ticking > 0, the timer's
 * period is SHM_TICK_NS. */
void shm_timer_run(shm_iface_t *iface, int change)
{
    bool was = iface->n_ticking > 0;

    iface->n_ticking += (uint32_t)change;
    if (was != (iface->n_ticking > 0))
        shm_timer_set(iface);
}

/* ---- memory of the rings ---- */

void shm_release_begin(shm_iface_t *iface)
{
    if (iface->releasing)
        return;
    iface->releasing = true;
    if (iface->n_ticking == 0)
        shm_timer_set(iface);
}

void shm_release_step(shm_iface_t *iface)
{
    bool more = false;

    if (!iface->releasing)
        return;
    for (uint32_t i = 0; i < iface->n_eps; i++)
        if (iface->eps[i]->state == SHM_EP_UP)
            more |= shm_producer_release(&iface->eps[i]->tx);
    iface->releasing = more;
    if (!more && iface->n_ticking == 0)
        shm_timer_set(iface);
}

/* ---- opening ---- */

static bool shm_membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

void shm_source_barrier(const shm_iface_t *iface)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (iface->expedited)
        shm_membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

psc_status_t shm_sources_open(shm_iface_t *iface)
{
    iface->doorbell.ready = shm_doorbell_ready;
    iface->peers.ready = shm_peers_ready;
    iface->epoll = epoll_create1(EPOLL_CLOEXEC);
    iface->peers.fd = epoll_create1(EPOLL_CLOEXEC);
    iface->doorbell.fd = shm_pipe_open();
    iface->timer.fd =
        timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (iface->epoll < 0 || iface->peers.fd < 0 || iface->doorbell.fd < 0 ||
        iface->timer.fd < 0)
        return PSC_ERR_NO_MEMORY;
    iface->expedited =
        shm_membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) &&
        shm_membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    if (shm_source_watch(iface->epoll, &iface->doorbell) != PSC_OK ||
        shm_source_watch(iface->epoll, &iface->peers) != PSC_OK)
        return PSC_ERR_NO_MEMORY;
    return shm_source_watch(iface->epoll, &iface->timer);
}

void shm_sources_close(shm_iface_t *iface)
{
    shm_source_close(&iface->peers);
    shm_source_close(&iface->doorbell);
    shm_source_close(&iface->timer);
    if (iface->epoll >= 0)
        close(iface->epoll);
    iface->epoll = -1;
}

unsigned shm_sources_poll(int set)
{
    struct epoll_event events[SHM_EVENTS_MAX];
    int n = PSC_RESTART(epoll_wait(set, events, SHM_EVENTS_MAX, 0));

    for (int i = 0; i < n; i++) {
        shm_source_t *source = events[i].data.ptr;

        /* Skip a source that the handler of an earlier event has closed. */
        if (source->fd >= 0)
            source->ready(source, events[i].events);
    }
    return n > 0 ? (unsigned)n : 0;
}
