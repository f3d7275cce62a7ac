/* Functions of the specification that look for events, and those that wait. */
#include <errno.h>
#include <poll.h>

#include "nic.h"

/* After this many datagrams since a caller last prepared to sleep, more are
 * expected soon, and the caller polls instead of sleeping. */
#define FLOWING 4u
/* maximum number of progress passes (psni_progress) that one psni_wait_pass
 * makes */
#define PASSES 64u

/* A call that looks for events in queues or counters of one NI. It holds the
 * lock of the NI. */
typedef struct psni_wait {
    psni_ni_t *ni;
    psni_source_t *sources[PSNI_PIECES];
    unsigned n;
    /* thresholds of counters; NULL if the sources are queues */
    const ptl_size_t *tests;
    int64_t spin_until, deadline;
    void *event; /* where the event is stored: ptl_event_t or ptl_ct_event_t */
    unsigned *which;
} psni_wait_t;

/* ---- polling ---- */

/* Returns PTL_EQ_EMPTY if the source (an event queue or counter) has no event.
 * A counter that has counted a failure ends the wait like one that has reached
 * its threshold. */
static int psni_wait_try(psni_wait_t *wait, unsigned which)
{
    psni_ct_t *ct = (psni_ct_t *)wait->sources[which];

    if (wait->tests == NULL)
        return psni_eq_take((psni_eq_t *)wait->sources[which], wait->event);
    if (ct->value.success < wait->tests[which] && ct->value.failure == 0)
        return PTL_EQ_EMPTY;
    *(ptl_ct_event_t *)wait->event = ct->value;
    return PTL_OK;
}

static int psni_wait_look(psni_wait_t *wait)
{
    int rc = PTL_EQ_EMPTY;

    for (unsigned i = 0; rc == PTL_EQ_EMPTY && i < wait->n; i++) {
        *wait->which = i;
        rc = psni_wait_try(wait, i);
    }
    return rc;
}

/* Looks for an event at first and after each datagram that was handled, so that
 * an event is returned at once. */
static int psni_wait_pass(psni_wait_t *wait)
{
    int rc = psni_wait_look(wait);

    for (unsigned i = 0; rc == PTL_EQ_EMPTY && i < PASSES; i++) {
        if (!psni_progress(wait->ni))
            break;
        rc = psni_wait_look(wait);
    }
    return rc;
}

/* ---- waiting ---- */

static bool psni_wait_over(const psni_wait_t *wait)
{
    return wait->deadline != PSNI_NEVER && psc_clock_now() >= wait->deadline;
}

/* Returns true if the caller is to poll again instead of sleeping. Releases the
 * lock for a moment between two polls. */
static bool psni_wait_spin(const psni_wait_t *wait)
{
    if (psc_clock_now() >= wait->spin_until)
        return false;
    psc_lock_release(&wait->ni->lock);
    psc_clock_pause();
    psc_lock_acquire(&wait->ni->lock);
    return true;
}

static struct timespec psni_until(int64_t deadline)
{
    int64_t left = deadline - psc_clock_now();

    if (left < 0)
        left = 0;
    return (struct timespec){.tv_sec = left / 1000000000,
                             .tv_nsec = left % 1000000000};
}

/* Sleeps on the doorbells (wakeup.c) of the sources, and releases the lock
 * meanwhile. No event is missed: the sources were empty when their doorbells
 * were armed, and every later event rings a doorbell. */
static int psni_wait_sleep(const psni_wait_t *wait)
{
    struct pollfd fds[PSNI_PIECES];
    bool forever = wait->deadline == PSNI_NEVER;
    struct timespec left = {0};
    int n;

    psni_send_answers(wait->ni);
    for (unsigned i = 0; i < wait->n; i++) {
        psni_doorbell_t *doorbell = &wait->sources[i]->doorbell;
        int rc = psni_doorbell_open(doorbell);

        if (rc != PTL_OK)
            return rc;
        psni_doorbell_arm(doorbell, wait->ni);
        fds[i] = (struct pollfd){.fd = doorbell->epoll_fd, .events = POLLIN};
    }
    if (!forever)
        left = psni_until(wait->deadline);
    psc_lock_release(&wait->ni->lock);
    n = ppoll(fds, wait->n, forever ? NULL : &left, NULL);
    psc_lock_acquire(&wait->ni->lock);
    return n < 0 && errno == EINTR ? PTL_INTERRUPTED : PTL_OK;
}

static int psni_wait_run(psni_wait_t *wait)
{
    int rc = psni_wait_pass(wait);

    while (rc == PTL_EQ_EMPTY && !psni_wait_over(wait)) {
        if (!psni_wait_spin(wait)) {
            rc = psni_wait_sleep(wait);
            if (rc != PTL_OK)
                return rc;
        }
        rc = psni_wait_pass(wait);
    }
    return rc;
}

/* Takes the lock of the NI to which all sources belong. */
static int psni_wait_enter(psni_wait_t *wait, const ptl_handle_any_t *handles,
                           psni_kind_t kind)
{
    int rc = psni_enter(handles[0], kind, &wait->sources[0]);

    if (rc != PTL_OK)
        return rc;
    wait->ni = wait->sources[0]->object.ni;
    for (unsigned i = 1; i < wait->n; i++) {
        wait->sources[i] = psni_find(wait->ni, handles[i], kind);
        if (wait->sources[i] == NULL)
            rc = PTL_ARG_INVALID;
    }
    if (rc != PTL_OK)
        psni_leave(wait->ni);
    return rc;
}

/* Waits for an event of the sources. Returns PTL_EQ_EMPTY if the timeout
 * expires without one. */
static int psni_wait(const ptl_handle_any_t *handles, psni_kind_t kind,
                     const ptl_size_t *tests, unsigned n, ptl_time_t timeout,
                     void *event, unsigned *which)
{
    int64_t now = psc_clock_now();
    psni_wait_t wait;
    int rc = PTL_ARG_INVALID;

    if (n == 0 || n > PSNI_PIECES || event == NULL || which == NULL)
        return rc;
    wait.n = n;
    wait.tests = tests;
    wait.event = event;
    wait.which = which;
    rc = psni_wait_enter(&wait, handles, kind);
    if (rc != PTL_OK)
        return rc;
    wait.spin_until = now + (int64_t)wait.ni->settings.spin_us * 1000;
    wait.deadline = timeout == PTL_TIME_FOREVER
                        ? PSNI_NEVER
                        : now + (int64_t)timeout * 1000000;
    rc = psni_wait_run(&wait);
    psni_leave(wait.ni);
    return rc;
}

/* ---- event queues ---- */

int PtlEQGet(ptl_handle_eq_t eq_handle, ptl_event_t *event)
{
    unsigned which;

    return PtlEQPoll(&eq_handle, 1, 0, event, &which);
}

int PtlEQWait(ptl_handle_eq_t eq_handle, ptl_event_t *event)
{
    unsigned which;

    return PtlEQPoll(&eq_handle, 1, PTL_TIME_FOREVER, event, &which);
}

int PtlEQPoll(const ptl_handle_eq_t *eq_handles, unsigned int size,
              ptl_time_t timeout, ptl_event_t *event, unsigned int *which)
{
    return psni_wait(eq_handles, PSNI_KIND_EQ, NULL, size, timeout, event,
                     which);
}

/* Returns PTL_OK, as if there were events, while datagrams of a long message
 * arrive: sleeping between its frames would cost more than the frames do. */
int softni_eq_arm(ptl_handle_eq_t eq_handle)
{
    psni_eq_t *eq;
    psni_ni_t *ni;
    int rc = psni_enter(eq_handle, PSNI_KIND_EQ, &eq);

    if (rc != PTL_OK)
        return rc;
    ni = eq->source.object.ni;
    if (ni->flow >= FLOWING) {
        ni->flow = 0;
        psni_leave(ni);
        return PTL_OK;
    }
    rc = psni_doorbell_open(&eq->source.doorbell);
    if (rc == PTL_OK) {
        psni_send_answers(ni);
        psni_doorbell_arm(&eq->source.doorbell, ni);
    }
    if (rc == PTL_OK && eq->head == eq->tail)
        rc = PTL_EQ_EMPTY;
    psni_leave(ni);
    return rc;
}

/* ---- counting events ---- */

int PtlCTGet(ptl_handle_ct_t ct_handle, ptl_ct_event_t *event)
{
    psni_ct_t *ct;
    int rc = psni_enter(ct_handle, PSNI_KIND_CT, &ct);

    if (rc != PTL_OK)
        return rc;
    psni_progress(ct->source.object.ni);
    *event = ct->value;
    psni_leave(ct->source.object.ni);
    return PTL_OK;
}

int PtlCTWait(ptl_handle_ct_t ct_handle, ptl_size_t test, ptl_ct_event_t *event)
{
    unsigned which;

    return PtlCTPoll(&ct_handle, &test, 1, PTL_TIME_FOREVER, event, &which);
}

int PtlCTPoll(const ptl_handle_ct_t *ct_handles, const ptl_size_t *tests,
              unsigned int size, ptl_time_t timeout, ptl_ct_event_t *event,
              unsigned int *which)
{
    int rc =
        psni_wait(ct_handles, PSNI_KIND_CT, tests, size, timeout, event, which);

    return rc == PTL_EQ_EMPTY ? PTL_CT_NONE_REACHED : rc;
}
