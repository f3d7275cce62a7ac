/* Functions of the specification that look for events, and those that wait. */
#include <errno.h>
#include <poll.h>

#include "nic.h"

#define FLOWING 4u /* datagrams since a bell was armed */

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

/* Releases the lock for a moment between two passes. */
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

/* The caller has found nothing, with the lock taken; every event after arming
 * rings a bell. */
int psni_patience_sleep(psni_patience_t *patience, psni_bell_t *const *bells,
                        unsigned n_bells)
{
    struct pollfd fds[PSNI_PIECES];
    bool forever = patience->deadline == PSNI_NEVER;
    struct timespec left = {0};
    int n;

    psni_send_answers(patience->ni);
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

/* ---- event queues ---- */

/* Handles one datagram at a time, so that an event is returned at once. */
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

/* Enters queues of one NI, and takes its lock. */
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

/* Returns an event before the socket is read again. */
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

/* While a long message arrives, sleeping between its frames would cost more
 * than the frames do. */
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
    if (rc == PTL_OK) {
        psni_send_answers(ni);
        psni_bell_arm(&eq->bell, ni);
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
    psni_progress(ct->object.ni);
    *event = ct->value;
    psni_leave(ct->object.ni);
    return PTL_OK;
}

int PtlCTWait(ptl_handle_ct_t ct_handle, ptl_size_t test, ptl_ct_event_t *event)
{
    unsigned which;

    return PtlCTPoll(&ct_handle, &test, 1, PTL_TIME_FOREVER, event, &which);
}

/* A failure ends the wait like a success. */
static bool psni_ct_reached(psni_ct_t *const *cts, const ptl_size_t *tests,
                            unsigned n, ptl_ct_event_t *event, unsigned *which)
{
    for (unsigned i = 0; i < n; i++)
        if (cts[i]->value.success >= tests[i] || cts[i]->value.failure > 0) {
            *event = cts[i]->value;
            *which = i;
            return true;
        }
    return false;
}

static bool psni_ct_pass(psni_ct_t *const *cts, const ptl_size_t *tests,
                         unsigned n, ptl_ct_event_t *event, unsigned *which)
{
    bool reached = psni_ct_reached(cts, tests, n, event, which);

    for (unsigned i = 0; !reached && i < PSNI_PASSES; i++) {
        if (!psni_progress(cts[0]->object.ni))
            break;
        reached = psni_ct_reached(cts, tests, n, event, which);
    }
    return reached;
}

static int psni_ct_await(psni_ct_t *const *cts, const ptl_size_t *tests,
                         unsigned n, ptl_time_t timeout, ptl_ct_event_t *event,
                         unsigned *which)
{
    psni_patience_t patience = psni_patience(cts[0]->object.ni, timeout);
    psni_bell_t *bells[PSNI_PIECES];
    int rc;

    while (!psni_ct_pass(cts, tests, n, event, which)) {
        if (psni_patience_over(&patience))
            return PTL_CT_NONE_REACHED;
        if (psni_patience_spin(&patience))
            continue;
        for (unsigned i = 0; i < n; i++)
            bells[i] = &cts[i]->bell;
        rc = psni_patience_sleep(&patience, bells, n);
        if (rc != PTL_OK)
            return rc;
    }
    return PTL_OK;
}

int PtlCTPoll(const ptl_handle_ct_t *ct_handles, const ptl_size_t *tests,
              unsigned int size, ptl_time_t timeout, ptl_ct_event_t *event,
              unsigned int *which)
{
    psni_ct_t *cts[PSNI_PIECES];
    int rc = PTL_ARG_INVALID;

    if (size == 0 || size > PSNI_PIECES || event == NULL || which == NULL)
        return rc;
    rc = psni_enter(ct_handles[0], PSNI_KIND_CT, &cts[0]);
    if (rc != PTL_OK)
        return rc;
    for (unsigned i = 1; i < size; i++) {
        cts[i] = psni_find(cts[0]->object.ni, ct_handles[i], PSNI_KIND_CT);
        if (cts[i] == NULL)
            rc = PTL_ARG_INVALID;
    }
    if (rc == PTL_OK)
        rc = psni_ct_await(cts, tests, size, timeout, event, which);
    psni_leave(cts[0]->object.ni);
    return rc;
}
