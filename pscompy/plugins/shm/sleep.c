/* Sleeping without lost wake-ups: one epoll descriptor that becomes readable
 * when a peer rings the bell, dials, or ends, and the flags by which a sleeper
 * asks its peers to ring.
 *
 * The sleeper sets its flag and then checks the ring again; the other side
 * writes the ring and then checks the flag. Each side needs a full fence
 * between its two steps, or a wake-up is lost. On the sending side the fence
 * would cost time with every message. Where both processes are registered for
 * membarrier, the sleeper executes the fence for both sides. */
#include <errno.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "shm.h"

/* the timer's period */
#define SHM_TICK_NS 10000000
#define SHM_EVENTS_MAX 16

/* ---- sources ---- */

psc_status_t shm_source_watch(shm_iface_t *iface, shm_source_t *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

    if (epoll_ctl(iface->epoll, EPOLL_CTL_ADD, source->fd, &event) != 0)
        return PSC_ERR_NO_MEMORY;
    return PSC_OK;
}

void shm_source_unwatch(shm_iface_t *iface, shm_source_t *source)
{
    epoll_ctl(iface->epoll, EPOLL_CTL_DEL, source->fd, NULL);
}

/* Removed from the set explicitly: a forked child may hold a copy of the
 * descriptor, and then close() would not end the watch. */
void shm_source_close(shm_iface_t *iface, shm_source_t *source)
{
    if (source->fd < 0)
        return;
    shm_source_unwatch(iface, source);
    close(source->fd);
    source->fd = -1;
}

/* ---- bell and timer ---- */

void shm_source_drain(const shm_source_t *source)
{
    uint64_t count;

    while (read(source->fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
}

static void shm_bell_ready(shm_source_t *self, uint32_t events)
{
    shm_iface_t *iface = psc_container_of(self, shm_iface_t, bell);

    (void)events;
    shm_source_drain(self);
    iface->mail = true;
}

/* If the counter is full the write fails, but then the peer has been woken
 * anyway. */
void shm_bell_ring(int bell)
{
    const uint64_t one = 1;

    while (write(bell, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

/* Run the timer while n_ticking > 0. `change` is +1 or -1. */
void shm_sleep_tick(shm_iface_t *iface, int change)
{
    bool was = iface->n_ticking > 0, is;
    struct itimerspec period = {0};

    iface->n_ticking += (uint32_t)change;
    is = iface->n_ticking > 0;
    if (was == is)
        return;
    if (is)
        period.it_interval.tv_nsec = period.it_value.tv_nsec = SHM_TICK_NS;
    timerfd_settime(iface->timer.fd, 0, &period, NULL);
}

/* ---- opening ---- */

static bool shm_membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

psc_status_t shm_sleep_open(shm_iface_t *iface)
{
    iface->bell.ready = shm_bell_ready;
    iface->epoll = epoll_create1(EPOLL_CLOEXEC);
    iface->bell.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    iface->timer.fd =
        timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (iface->epoll < 0 || iface->bell.fd < 0 || iface->timer.fd < 0)
        return PSC_ERR_NO_MEMORY;
    iface->expedited =
        shm_membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) &&
        shm_membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    if (shm_source_watch(iface, &iface->bell) != PSC_OK)
        return PSC_ERR_NO_MEMORY;
    return shm_source_watch(iface, &iface->timer);
}

void shm_sleep_close(shm_iface_t *iface)
{
    shm_source_close(iface, &iface->bell);
    shm_source_close(iface, &iface->timer);
    if (iface->epoll >= 0)
        close(iface->epoll);
    iface->epoll = -1;
}

/* ---- polling and sleeping ---- */

unsigned shm_sleep_poll(shm_iface_t *iface)
{
    struct epoll_event events[SHM_EVENTS_MAX];
    int n = epoll_wait(iface->epoll, events, SHM_EVENTS_MAX, 0);

    for (int i = 0; i < n; i++) {
        shm_source_t *source = events[i].data.ptr;

        /* Skip a source that the handler of an earlier event has closed. */
        if (source->fd >= 0)
            source->ready(source, events[i].events);
    }
    return n > 0 ? (unsigned)n : 0;
}

int shm_sleep_fd(psc_iface_t *iface)
{
    return shm_iface(iface)->epoll;
}

/* True if a peer has woken us: it clears the flag. */
static bool shm_flag_taken(_Atomic uint32_t *flag)
{
    bool taken = atomic_load_explicit(flag, memory_order_relaxed) == 0;

    atomic_store_explicit(flag, 0, memory_order_relaxed);
    return taken;
}

static bool shm_ep_disarm(shm_ep_t *ep)
{
    bool rung;

    if (ep->state != SHM_EP_UP)
        return false;
    rung = shm_flag_taken(&ep->rx.ring.control->sleeping);
    if (ep->tx.need > 0)
        rung |= shm_flag_taken(&ep->tx.ring.control->starving);
    return rung;
}

/* True if the peer relies on our membarrier call instead of its own fence. */
static bool shm_ep_arm(shm_ep_t *ep)
{
    if (ep->state != SHM_EP_UP)
        return false;
    atomic_store_explicit(&ep->rx.ring.control->sleeping, 1,
                          memory_order_relaxed);
    if (ep->tx.need > 0)
        atomic_store_explicit(&ep->tx.ring.control->starving, 1,
                              memory_order_relaxed);
    return !ep->fenced;
}

/* True if work has arrived before the flags were set. */
static bool shm_ep_pending(shm_ep_t *ep)
{
    if (ep->state == SHM_EP_LEAVING)
        return true;
    if (ep->state != SHM_EP_UP)
        return false;
    return shm_consumer_peek(&ep->rx) != 0 ||
           (ep->tx.need > 0 &&
            shm_producer_reserve(&ep->tx, ep->tx.need) != PSC_ERR_NO_RESOURCE);
}

void shm_sleep_disarm(shm_iface_t *iface)
{
    iface->armed = false;
    for (uint32_t i = 0; i < iface->n_eps; i++)
        iface->rung |= shm_ep_disarm(iface->eps[i]);
}

/* The bell may have announced a letter; the next pass polls the sockets and
 * processes it. */
static void shm_bell_silence(shm_iface_t *iface)
{
    shm_source_drain(&iface->bell);
    psc_list_for_each(link, &iface->links, shm_link_t, listed)
        iface->mail |= shm_link_letter(link) != 0;
    if (iface->mail)
        iface->idle_polls = UINT32_MAX - 1;
}

psc_status_t shm_sleep_arm(psc_iface_t *super)
{
    shm_iface_t *iface = shm_iface(super);
    bool barrier = false;
    bool pending = iface->n_failing > 0 || iface->n_sharing > 0;

    if (iface->rung)
        shm_bell_silence(iface);
    pending |= iface->mail;
    iface->rung = false;
    iface->armed = true;
    for (uint32_t i = 0; i < iface->n_eps; i++)
        barrier |= shm_ep_arm(iface->eps[i]);
    atomic_thread_fence(memory_order_seq_cst);
    if (barrier)
        shm_membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    for (uint32_t i = 0; i < iface->n_eps && !pending; i++)
        pending = shm_ep_pending(iface->eps[i]);
    if (!pending)
        return PSC_OK;
    shm_sleep_disarm(iface);
    return PSC_ERR_NO_RESOURCE;
}
