/* Waits for requests of the core. Some programs call MPI with Python's GIL
 * held. A wait that slept with it would stop all other threads of Python, among
 * them the one that connects ranks, so that both ranks would hang. Such a wait
 * therefore polls for a while, which most short exchanges need, and lets the
 * GIL go before it sleeps. */
#include "library.h"

#define SPIN_POLLS 2000u /* passes that are made with the GIL held */

static psc_status_t wait_without_gil(psc_request_t *const *requests, size_t n,
                                     psc_wait_mode_t mode)
{
    const psc_mpi_host_t *host = &psc_mpi.host;
    void *state = host->gil_release();
    psc_status_t status = host->api->wait(host->worker, requests, n,
                                          mode | PSC_WAIT_OWN, PSC_FOREVER);

    host->gil_take(state);
    return status;
}

static psc_status_t wait_once(psc_request_t *const *requests, size_t n,
                              psc_wait_mode_t mode)
{
    const psc_mpi_host_t *host = &psc_mpi.host;

    if (!host->gil_held())
        return host->api->wait(host->worker, requests, n, mode | PSC_WAIT_OWN,
                               PSC_FOREVER);
    if (n == 1 && host->api->spin(host->worker, requests[0], SPIN_POLLS))
        return PSC_OK;
    return wait_without_gil(requests, n, mode);
}

int psc_mpi_wait(psc_request_t *const *requests, size_t n, psc_wait_mode_t mode)
{
    psc_status_t status;

    do {
        status = wait_once(requests, n, mode);
        if (status == PSC_OK)
            return MPI_SUCCESS;
    } while ((status == PSC_ERR_INTERRUPTED || status == PSC_INPROGRESS) &&
             psc_mpi.host.signals());
    return psc_mpi_error_of(status, -1);
}
