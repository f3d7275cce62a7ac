/* A doorbell wakes a caller that sleeps until a queue or a counter has an
 * event. The doorbell's descriptor is readable when datagrams wait in the
 * socket (the sleeper handles them itself), or when another thread posted the
 * event while the doorbell was armed.
 *
 * Each doorbell whose epoll descriptor watches the socket makes every datagram
 * dearer for its sender. So a doorbell begins to watch the socket when it is
 * armed, and stops when callers have made some passes without sleeping. A
 * caller that sleeps while another one polls is woken by the polling one, or by
 * the NI's own thread (thread.c). */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "nic.h"
#include "pscompy/transport/kit/restart.h"

#define AWAKE_PASSES 256u

static bool psni_doorbell_watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

int psni_doorbell_open(psni_doorbell_t *doorbell)
{
    if (doorbell->open)
        return PTL_OK;
    doorbell->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (doorbell->epoll_fd < 0)
        return PTL_NO_SPACE;
    doorbell->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (doorbell->event_fd < 0)
        goto err_epoll;
    if (!psni_doorbell_watch(doorbell->epoll_fd, doorbell->event_fd))
        goto err_event;
    psc_list_init(&doorbell->listening);
    doorbell->open = true;
    return PTL_OK;
err_event:
    close(doorbell->event_fd);
err_epoll:
    close(doorbell->epoll_fd);
    return PTL_NO_SPACE;
}

void psni_doorbell_close(psni_doorbell_t *doorbell, psni_ni_t *ni)
{
    if (!doorbell->open)
        return;
    if (doorbell->armed)
        ni->armed--;
    psc_list_remove(&doorbell->listening);
    close(doorbell->event_fd);
    close(doorbell->epoll_fd);
    doorbell->open = doorbell->armed = false;
}

void psni_doorbell_arm(psni_doorbell_t *doorbell, psni_ni_t *ni)
{
    uint64_t rings;

    if (doorbell->rung &&
        PSC_RESTART(read(doorbell->event_fd, &rings, sizeof(rings))) > 0)
        doorbell->rung = false;
    if (!doorbell->armed)
        ni->armed++;
    doorbell->armed = true;
    ni->awake = ni->flow = 0;
    if (psc_link_listed(&doorbell->listening))
        return;
    if (psni_doorbell_watch(doorbell->epoll_fd, ni->socket))
        psc_list_push(&ni->listening, &doorbell->listening);
    else
        /* the doorbell does not watch the socket, so the caller must not sleep
         * on the doorbell */
        psni_doorbell_ring(doorbell, ni);
}

void psni_doorbells_rest(psni_ni_t *ni)
{
    psc_link_t *link;

    if (psc_list_empty(&ni->listening) || ++ni->awake < AWAKE_PASSES)
        return;
    while ((link = psc_list_pop(&ni->listening)) != NULL) {
        psni_doorbell_t *doorbell =
            psc_container_of(link, psni_doorbell_t, listening);

        epoll_ctl(doorbell->epoll_fd, EPOLL_CTL_DEL, ni->socket, NULL);
    }
}

void psni_doorbell_ring(psni_doorbell_t *doorbell, psni_ni_t *ni)
{
    static const uint64_t one = 1;

    if (!doorbell->armed)
        return;
    doorbell->armed = false;
    ni->armed--;
    doorbell->rung = PSC_RESTART(write(doorbell->event_fd, &one,
                                       sizeof(one))) == sizeof(one);
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
