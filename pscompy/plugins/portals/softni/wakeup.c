/* A bell wakes a caller that sleeps until a queue or a counter has an event.
 * The bell's descriptor is readable when datagrams wait in the socket (the
 * sleeper handles them itself), or when another thread posted the event while
 * the bell was armed.
 *
 * Each bell whose epoll descriptor watches the socket makes every datagram
 * dearer for its sender. So a bell begins to watch the socket when it is armed,
 * and stops when callers have made some passes without sleeping. A caller that
 * sleeps while another one polls is woken by the polling one, or by the NI's
 * own thread (thread.c). */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "nic.h"
#include "pscompy/transport/kit/restart.h"

#define AWAKE_PASSES 256u

static bool psni_bell_watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

int psni_bell_open(psni_bell_t *bell)
{
    if (bell->open)
        return PTL_OK;
    bell->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (bell->epoll_fd < 0)
        return PTL_NO_SPACE;
    bell->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bell->event_fd < 0)
        goto err_epoll;
    if (!psni_bell_watch(bell->epoll_fd, bell->event_fd))
        goto err_event;
    psc_list_init(&bell->listening);
    bell->open = true;
    return PTL_OK;
err_event:
    close(bell->event_fd);
err_epoll:
    close(bell->epoll_fd);
    return PTL_NO_SPACE;
}

void psni_bell_close(psni_bell_t *bell, psni_ni_t *ni)
{
    if (!bell->open)
        return;
    if (bell->armed)
        ni->armed--;
    psc_list_remove(&bell->listening);
    close(bell->event_fd);
    close(bell->epoll_fd);
    bell->open = bell->armed = false;
}

void psni_bell_arm(psni_bell_t *bell, psni_ni_t *ni)
{
    uint64_t rings;

    if (bell->rung &&
        PSC_RESTART(read(bell->event_fd, &rings, sizeof(rings))) > 0)
        bell->rung = false;
    if (!bell->armed)
        ni->armed++;
    bell->armed = true;
    ni->awake = ni->flow = 0;
    if (psc_link_listed(&bell->listening))
        return;
    if (psni_bell_watch(bell->epoll_fd, ni->socket))
        psc_list_push(&ni->listening, &bell->listening);
    else
        /* the bell does not watch the socket, so the caller must not sleep on
         * the bell */
        psni_bell_ring(bell, ni);
}

void psni_bells_rest(psni_ni_t *ni)
{
    psc_link_t *link;

    if (psc_list_empty(&ni->listening) || ++ni->awake < AWAKE_PASSES)
        return;
    while ((link = psc_list_pop(&ni->listening)) != NULL) {
        psni_bell_t *bell = psc_container_of(link, psni_bell_t, listening);

        epoll_ctl(bell->epoll_fd, EPOLL_CTL_DEL, ni->socket, NULL);
    }
}

void psni_bell_ring(psni_bell_t *bell, psni_ni_t *ni)
{
    static const uint64_t one = 1;

    if (!bell->armed)
        return;
    bell->armed = false;
    ni->armed--;
    bell->rung =
        PSC_RESTART(write(bell->event_fd, &one, sizeof(one))) == sizeof(one);
}

/* ---- the thread ---- */

void psni_thread_wake(psni_ni_t *ni)
{
    static const uint64_t one = 1;

    if (ni->thread.running)
        (void)!PSC_RESTART(write(ni->thread.wake_fd, &one, sizeof(one)));
}

void psni_timer(psni_ni_t *ni, int64_t when)
{
    if (when >= ni->deadline)
        return;
    ni->deadline = when;
    if (when < ni->thread.sleeps_until)
        psni_thread_wake(ni);
}
