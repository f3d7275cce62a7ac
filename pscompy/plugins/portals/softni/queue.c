/* Event queues, and how their callers wait. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "nic.h"

#define FLOWING 4u /* datagrams since a bell was armed */

/* Beyond what the user asked for: room to tell that tables were disabled. */
#define SPARE 64u

int PtlEQAlloc(ptl_handle_ni_t ni_handle, ptl_size_t count,
               ptl_handle_eq_t *eq_handle)
{
    psni_ni_t *ni;
    psni_eq_t *eq;
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, &ni);

    if (rc != PTL_OK)
        return rc;
    eq = psni_pool_take(&ni->pools[PSNI_KIND_EQ]);
    rc = PTL_NO_SPACE;
    if (eq == NULL)
        goto out;
    if (ni->settings.max_events > 0 && count > ni->settings.max_events)
        count = ni->settings.max_events;
    eq->size = count == 0 ? 1 : count;
    eq->spare = SPARE;
    if (eq->size < SIZE_MAX / sizeof(ptl_event_t) - SPARE)
        eq->ring = calloc(eq->size + SPARE, sizeof(ptl_event_t));
    if (eq->ring == NULL) {
        psni_pool_give(&ni->pools[PSNI_KIND_EQ], eq);
        goto out;
    }
    *eq_handle = psni_handle(&eq->object);
    rc = PTL_OK;
out:
    psni_leave(ni);
    return rc;
}

void psni_eq_close(psni_eq_t *eq)
{
    psni_bell_close(&eq->bell, eq->object.ni);
    free(eq->ring);
    psni_pool_give(&eq->object.ni->pools[PSNI_KIND_EQ], eq);
}

int PtlEQFree(ptl_handle_eq_t eq_handle)
{
    psni_eq_t *eq;
    psni_ni_t *ni;
    int rc = psni_enter(eq_handle, PSNI_KIND_EQ, &eq);

    if (rc != PTL_OK)
        return rc;
    ni = eq->object.ni;
    if (eq->users > 0)
        rc = PTL_IN_USE;
    else
        psni_eq_close(eq);
    psni_leave(ni);
    return rc;
}

bool psni_eq_room(const psni_eq_t *eq, unsigned events)
{
    return eq->tail - eq->head + eq->promised + events <= eq->size;
}

/* An event that finds no room is lost, and the queue says so. Only the news
 * that a table was disabled may use the spare places. */
void psni_eq_post(psni_eq_t *eq, const ptl_event_t *event)
{
    uint64_t room = eq->size;

    if (event->type == PTL_EVENT_PT_DISABLED)
        room += eq->spare;
    if (eq->tail - eq->head >= room)
        eq->dropped = true;
    else
        eq->ring[eq->tail++ % (eq->size + eq->spare)] = *event;
    psni_bell_ring(&eq->bell, eq->object.ni);
}

static int psni_eq_take(psni_eq_t *eq, ptl_event_t *event)
{
    if (eq->head == eq->tail)
        return PTL_EQ_EMPTY;
    *event = eq->ring[eq->head++ % (eq->size + eq->spare)];
    if (!eq->dropped)
        return PTL_OK;
    eq->dropped = false;
    return PTL_EQ_DROPPED;
}

/* One datagram at a time, so that an event is handed over at once. */
static int psni_eq_look(psni_eq_t *eq, ptl_event_t *event)
{
    int rc = psni_eq_take(eq, event);

    for (unsigned i = 0; rc == PTL_EQ_EMPTY && i < PSNI_PASSES; i++) {
        if (!psni_progress(eq->object.ni))
            break;
        rc = psni_eq_take(eq, event);
    }
    return rc;
}

int PtlEQGet(ptl_handle_eq_t eq_handle, ptl_event_t *event)
{
    psni_eq_t *eq;
    int rc = psni_enter(eq_handle, PSNI_KIND_EQ, &eq);

    if (rc != PTL_OK)
        return rc;
    rc = psni_eq_look(eq, event);
    psni_leave(eq->object.ni);
    return rc;
}

int PtlEQWait(ptl_handle_eq_t eq_handle, ptl_event_t *event)
{
    unsigned which;

    return PtlEQPoll(&eq_handle, 1, PTL_TIME_FOREVER, event, &which);
}

/* All queues must be of one NI, whose lock is taken then. */
static int psni_eq_enter_all(const ptl_handle_eq_t *handles, unsigned n,
                             psni_eq_t **eqs)
{
    int rc = n == 0 ? PTL_ARG_INVALID : PTL_OK;

    if (rc == PTL_OK)
        rc = psni_enter(handles[0], PSNI_KIND_EQ, &eqs[0]);
    if (rc != PTL_OK)
        return rc;
    for (unsigned i = 1; i < n; i++) {
        eqs[i] = psni_find(eqs[0]->object.ni, handles[i], PSNI_KIND_EQ);
        if (eqs[i] == NULL) {
            psni_leave(eqs[0]->object.ni);
            return PTL_ARG_INVALID;
        }
    }
    return PTL_OK;
}

static int psni_eq_look_all(psni_eq_t **eqs, unsigned n, ptl_event_t *event,
                            unsigned *which)
{
    for (unsigned i = 0; i < n; i++) {
        int rc = psni_eq_take(eqs[i], event);

        if (rc != PTL_EQ_EMPTY) {
            *which = i;
            return rc;
        }
    }
    return PTL_EQ_EMPTY;
}

/* What came is looked at before anything else is asked of the socket. */
static int psni_eq_pass(psni_eq_t **eqs, unsigned n, ptl_event_t *event,
                        unsigned *which)
{
    int rc = psni_eq_look_all(eqs, n, event, which);

    for (unsigned i = 0; rc == PTL_EQ_EMPTY && i < PSNI_PASSES; i++) {
        if (!psni_progress(eqs[0]->object.ni))
            break;
        rc = psni_eq_look_all(eqs, n, event, which);
    }
    return rc;
}

static int psni_eq_await(psni_eq_t **eqs, unsigned n, ptl_time_t timeout,
                         ptl_event_t *event, unsigned *which)
{
    psni_ni_t *ni = eqs[0]->object.ni;
    psni_bell_t *bells[PSNI_PIECES];
    psni_patience_t patience = psni_patience(ni, timeout);
    int rc = psni_eq_pass(eqs, n, event, which);

    while (rc == PTL_EQ_EMPTY && !psni_patience_over(&patience)) {
        if (!psni_patience_spin(&patience)) {
            for (unsigned i = 0; i < n; i++)
                bells[i] = &eqs[i]->bell;
            rc = psni_patience_sleep(&patience, bells, n);
            if (rc != PTL_OK)
                return rc;
        }
        rc = psni_eq_pass(eqs, n, event, which);
    }
    return rc;
}

int PtlEQPoll(const ptl_handle_eq_t *eq_handles, unsigned int size,
              ptl_time_t timeout, ptl_event_t *event, unsigned int *which)
{
    psni_eq_t *eqs[PSNI_PIECES];
    int rc = PTL_ARG_INVALID;

    if (size > PSNI_PIECES || event == NULL || which == NULL)
        return rc;
    rc = psni_eq_enter_all(eq_handles, size, eqs);
    if (rc != PTL_OK)
        return rc;
    rc = psni_eq_await(eqs, size, timeout, event, which);
    psni_leave(eqs[0]->object.ni);
    return rc;
}

int softni_eq_fd(ptl_handle_eq_t eq_handle, int *fd)
{
    psni_eq_t *eq;
    int rc = psni_enter(eq_handle, PSNI_KIND_EQ, &eq);

    if (rc != PTL_OK)
        return rc;
    rc = psni_bell_open(&eq->bell);
    if (rc == PTL_OK)
        *fd = eq->bell.epoll_fd;
    psni_leave(eq->object.ni);
    return rc;
}

/* While a long message comes in, sleeping between its frames would cost more
 * than they do. */
int softni_eq_arm(ptl_handle_eq_t eq_handle)
{
    psni_eq_t *eq;
    psni_ni_t *ni;
    int rc = psni_enter(eq_handle, PSNI_KIND_EQ, &eq);

    if (rc != PTL_OK)
        return rc;
    ni = eq->object.ni;
    if (ni->flow >= FLOWING) {
        ni->flow = 0;
        psni_leave(ni);
        return PTL_OK;
    }
    rc = psni_bell_open(&eq->bell);
    if (rc == PTL_OK)
        psni_bell_arm(&eq->bell, ni);
    if (rc == PTL_OK && eq->head == eq->tail)
        rc = PTL_EQ_EMPTY;
    psni_leave(ni);
    return rc;
}

/* ---- waiting ---- */

psni_patience_t psni_patience(psni_ni_t *ni, ptl_time_t timeout)
{
    int64_t now = psc_clock_now();

    return (psni_patience_t){
        .ni = ni,
        .spin_until = now + (int64_t)ni->settings.spin_us * 1000,
        .deadline = timeout == PTL_TIME_FOREVER
                        ? PSNI_NEVER
                        : now + (int64_t)timeout * 1000000};
}

bool psni_patience_over(const psni_patience_t *patience)
{
    return patience->deadline != PSNI_NEVER &&
           psc_clock_now() >= patience->deadline;
}

/* Others get the lock between two passes. */
bool psni_patience_spin(psni_patience_t *patience)
{
    if (psc_clock_now() >= patience->spin_until)
        return false;
    psc_lock_release(&patience->ni->lock);
    psc_clock_pause();
    psc_lock_acquire(&patience->ni->lock);
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

/* The caller has just seen that there is nothing, with the lock taken: what
 * comes after arming rings. */
int psni_patience_sleep(psni_patience_t *patience, psni_bell_t *const *bells,
                        unsigned n_bells)
{
    struct pollfd fds[PSNI_PIECES];
    bool forever = patience->deadline == PSNI_NEVER;
    struct timespec left = {0};
    int n;

    for (unsigned i = 0; i < n_bells; i++) {
        int rc = psni_bell_open(bells[i]);

        if (rc != PTL_OK)
            return rc;
        psni_bell_arm(bells[i], patience->ni);
        fds[i] = (struct pollfd){.fd = bells[i]->epoll_fd, .events = POLLIN};
    }
    if (!forever)
        left = psni_until(patience->deadline);
    psc_lock_release(&patience->ni->lock);
    n = ppoll(fds, n_bells, forever ? NULL : &left, NULL);
    psc_lock_acquire(&patience->ni->lock);
    return n < 0 && errno == EINTR ? PTL_INTERRUPTED : PTL_OK;
}
