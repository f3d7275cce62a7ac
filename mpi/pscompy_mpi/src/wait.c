/* Waits for requests of the core. Some programs call MPI with Python's GIL
 * held. A wait that slept with it would stop all other threads of Python, among
 * them the one that connects ranks, so that both ranks would hang. Such a wait
 * therefore polls for a while, which most short exchanges need, and lets the
 * GIL go before it sleeps.
 *
 * Every wait calls the operations of the program that other collectives need:
 * a rank may wait for one that waits for such a collective. */
#include "library.h"

#define SPIN_POLLS 2000u /* passes that are made with the GIL held */

static bool any_has_ended(psc_request_t *const *requests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (psc_request_state(requests[i]) != PSC_REQUEST_ACTIVE)
            return true;
    }
    return false;
}

/* Poll with the GIL held: another thread of Python must not run in between,
 * because an extension that holds the GIL may rely on that. */
static bool spin(psc_request_t *const *requests, size_t n, psc_wait_mode_t mode)
{
    const psc_mpi_host_t *host = &psc_mpi.host;

    if (n == 1)
        return host->api->spin(host->worker, requests[0], SPIN_POLLS);
    for (unsigned i = 0; i < SPIN_POLLS && mode == PSC_WAIT_ANY; i++) {
        if (any_has_ended(requests, n))
            return true;
        host->api->progress(host->worker, PSC_FLAG_TRY);
    }
    return false;
}

static psc_status_t wait_without_gil(psc_request_t *const *requests, size_t n,
                                     psc_wait_mode_t mode)
{
    const psc_mpi_host_t *host = &psc_mpi.host;
    void *state = host->gil_release();
    psc_status_t status =
        host->api->wait(host->worker, requests, n, mode, PSC_FOREVER);

    host->gil_take(state);
    return status;
}

static psc_status_t wait_once(psc_request_t *const *requests, size_t n,
                              psc_wait_mode_t mode)
{
    const psc_mpi_host_t *host = &psc_mpi.host;

    if (!host->gil_held())
        return host->api->wait(host->worker, requests, n, mode, PSC_FOREVER);
    if (spin(requests, n, mode))
        return PSC_OK;
    return wait_without_gil(requests, n, mode);
}

static void count_waits(psc_request_t *const *requests, size_t n, int change)
{
    for (size_t i = 0; i < n; i++)
        psc_request_count_wait(requests[i], change);
}

/* Do what the core's `wait` has returned for, and change how to wait on.
 * Returns false if there is no waiting on. */
static bool attend(psc_status_t status, psc_wait_mode_t *mode)
{
    const psc_mpi_host_t *host = &psc_mpi.host;

    *mode &= ~(unsigned)PSC_WAIT_OWN;
    if (status != PSC_INPROGRESS)
        return status == PSC_ERR_INTERRUPTED && host->signals();
    host->drain();
    if (host->api->pending(host->worker)) /* which this thread may not take */
        *mode |= PSC_WAIT_OWN;
    return true;
}

/* Wait on after a call of the core's `wait` that has not returned PSC_OK.
 * Reports of long waits see all calls as one. */
static psc_status_t wait_on(psc_request_t *const *requests, size_t n,
                            psc_wait_mode_t mode, psc_status_t status)
{
    count_waits(requests, n, +1);
    while (psc_mpi_running() && attend(status, &mode))
        status = wait_once(requests, n, mode);
    count_waits(requests, n, -1);
    return status;
}

int psc_mpi_wait(psc_request_t *const *requests, size_t n, psc_wait_mode_t mode)
{
    psc_status_t status = PSC_ERR_CLOSED;

    if (psc_mpi_wait_begin())
        status = wait_once(requests, n, mode);
    if (status != PSC_OK)
        status = wait_on(requests, n, mode, status);
    psc_mpi_wait_end();
    return status == PSC_OK ? MPI_SUCCESS : psc_mpi_error_of(status, -1);
}
