/* The thread that makes progress while no caller does: puts of peers arrive,
 * their gets are answered and lost frames are resent even while the program
 * computes.
 *
 * The thread sleeps on the socket. When it wakes and finds that callers poll
 * (or sleep on a doorbell, see wakeup.c, which the same datagram wakes), it
 * leaves the socket to them, and checks every TICK_MS whether they still poll.
 * So it costs nothing while the NI is idle, and one check per TICK_MS while a
 * caller polls. */
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "nic.h"
#include "pscompy/transport/kit/restart.h"

#define TICK_MS 2
#define PASSES 64

static void psni_thread_listen(psni_ni_t *ni, int operation)
{
    struct epoll_event event = {.events = EPOLLIN};

    epoll_ctl(ni->thread.epoll_fd, operation, ni->socket, &event);
}

static void psni_thread_watch(psni_ni_t *ni, bool watching)
{
    if (ni->thread.watching == watching)
        return;
    ni->thread.watching = watching;
    psni_thread_listen(ni, watching ? EPOLL_CTL_DEL : EPOLL_CTL_ADD);
}

static void psni_thread_serve(psni_ni_t *ni)
{
    for (unsigned i = 0; i < PASSES; i++)
        if (!psni_progress_pass(ni))
            break;
    psni_send_answers(ni);
}

static void psni_thread_look(psni_ni_t *ni, bool woken)
{
    psni_thread_t *thread = &ni->thread;
    bool present = ni->calls != thread->seen;

    thread->seen = ni->calls;
    if (present) {
        psni_thread_watch(ni, true);
    } else if (!thread->watching && woken && ni->armed > 0 &&
               !psc_list_empty(&ni->listening)) {
        psni_thread_watch(ni, true);
    } else {
        psni_thread_serve(ni);
        psni_thread_watch(ni, false);
    }
    thread->sleeps_until = thread->watching ? 0 : ni->deadline;
}

static int psni_thread_timeout(const psni_thread_t *thread)
{
    int64_t left;

    if (thread->watching)
        return TICK_MS;
    if (thread->sleeps_until == PSNI_NEVER)
        return -1;
    left = thread->sleeps_until - psc_clock_now();
    return left <= 0 ? 0 : (int)(left / 1000000 + 1);
}

/* Body of the thread. sleeps_until is read without the lock, because only this
 * thread writes it. */
static void *psni_thread_run(void *argument)
{
    psni_ni_t *ni = argument;
    psni_thread_t *thread = &ni->thread;
    struct epoll_event events[2];
    uint64_t rings;

    while (!atomic_load(&thread->stop)) {
        int n = epoll_wait(thread->epoll_fd, events, 2,
                           psni_thread_timeout(thread));
        bool woken = false;

        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == thread->wake_fd)
                (void)!PSC_RESTART(
                    read(thread->wake_fd, &rings, sizeof(rings)));
            else
                woken = true;
        }
        if (!psc_lock_try(&ni->lock)) {
            if (thread->watching)
                /* a caller holds the lock and polls the socket itself */
                continue;
            psc_lock_acquire(&ni->lock);
        }
        psni_thread_look(ni, woken);
        psc_lock_release(&ni->lock);
    }
    return NULL;
}

static bool psni_thread_open(psni_ni_t *ni)
{
    psni_thread_t *thread = &ni->thread;
    struct epoll_event event = {.events = EPOLLIN};

    thread->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    thread->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (thread->epoll_fd < 0 || thread->wake_fd < 0)
        return false;
    event.data.fd = thread->wake_fd;
    psni_thread_listen(ni, EPOLL_CTL_ADD);
    thread->sleeps_until = PSNI_NEVER;
    return epoll_ctl(thread->epoll_fd, EPOLL_CTL_ADD, thread->wake_fd,
                     &event) == 0;
}

static void psni_thread_close(psni_thread_t *thread)
{
    if (thread->epoll_fd >= 0)
        close(thread->epoll_fd);
    if (thread->wake_fd >= 0)
        close(thread->wake_fd);
}

int psni_thread_start(psni_ni_t *ni)
{
    sigset_t all, before;
    bool started = psni_thread_open(ni);

    if (started) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        ni->thread.running = true; /* the new thread reads `running` */
        started =
            pthread_create(&ni->thread.id, NULL, psni_thread_run, ni) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (!started) {
        ni->thread.running = false;
        psni_thread_close(&ni->thread);
    }
    return started ? PTL_OK : PTL_NO_SPACE;
}

void psni_thread_stop(psni_ni_t *ni)
{
    if (!ni->thread.running)
        return;
    atomic_store(&ni->thread.stop, true);
    psni_thread_wake(ni);
    pthread_join(ni->thread.id, NULL);
    ni->thread.running = false;
    psni_thread_close(&ni->thread);
}
