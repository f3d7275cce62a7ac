/* Waiting and testing: one request, all, any, some.
 *
 * A function that returns the error of one request calls the error handler of
 * its communicator; one of several requests returns MPI_ERR_IN_STATUS, and each
 * status has the code of its request. */
#include "library.h"

#include <stdlib.h>

static int raise_of(const psc_mpi_request_t *request, int code)
{
    return psc_mpi_raise(request ? request->comm : NULL, code);
}

static void progress(void)
{
    const psc_mpi_host_t *host = &psc_mpi.host;

    host->api->progress(host->worker, 0);
    if (host->api->pending(host->worker))
        host->drain();
}

static MPI_Status *status_at(MPI_Status *statuses, int i)
{
    return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
}

/* Null and inactive requests have ended, but only MPI_Wait and its like report
 * them. */
static bool is_active(const psc_mpi_request_t *request)
{
    return request && !(request->persistent && !request->active);
}

/* Returns the code of an error if one of the handles stands for nothing. */
static int check_handles(int n, const MPI_Request handles[])
{
    if (n < 0)
        return MPI_ERR_COUNT;
    if (!psc_mpi_running())
        return MPI_ERR_OTHER;
    for (int i = 0; i < n; i++) {
        if (handles[i] != MPI_REQUEST_NULL && !psc_mpi_request_find(handles[i]))
            return MPI_ERR_REQUEST;
    }
    return MPI_SUCCESS;
}

static int wait_for(const psc_mpi_request_t *request)
{
    psc_request_t *core;
    int code = MPI_SUCCESS;

    while (code == MPI_SUCCESS && (core = psc_mpi_request_pending(request)))
        code = psc_mpi_wait(&core, 1, PSC_WAIT_ALL);
    return code;
}

static bool has_ended(const psc_mpi_request_t *request)
{
    return !psc_mpi_request_pending(request);
}

/* ---- one ---- */

static int take(MPI_Request *handle, psc_mpi_request_t *request,
                MPI_Status *status)
{
    psc_mpi_comm_t *comm = request->comm;
    int code = psc_mpi_request_take(handle, request, status);

    return code == MPI_SUCCESS ? code : psc_mpi_raise(comm, code);
}

int MPI_Wait(MPI_Request *handle, MPI_Status *status)
{
    psc_mpi_request_t *request = psc_mpi_request_find(*handle);
    int code = check_handles(1, handle);

    if (code == MPI_SUCCESS && request)
        code = wait_for(request);
    if (code != MPI_SUCCESS)
        return raise_of(request, code);
    if (request)
        return take(handle, request, status);
    psc_mpi_status_empty(status);
    return MPI_SUCCESS;
}

int MPI_Test(MPI_Request *handle, int *flag, MPI_Status *status)
{
    psc_mpi_request_t *request = psc_mpi_request_find(*handle);
    int code = check_handles(1, handle);

    if (code != MPI_SUCCESS)
        return raise_of(request, code);
    if (request && !has_ended(request))
        progress();
    *flag = !request || has_ended(request);
    if (request)
        return *flag ? take(handle, request, status) : MPI_SUCCESS;
    psc_mpi_status_empty(status);
    return MPI_SUCCESS;
}

/* ---- all ---- */

/* Take one of several requests; the code goes into its status. */
static int take_into(MPI_Request *handle, MPI_Status *status)
{
    psc_mpi_request_t *request = psc_mpi_request_find(*handle);
    int code = MPI_SUCCESS;

    if (request)
        code = psc_mpi_request_take(handle, request, status);
    else
        psc_mpi_status_empty(status);
    if (status != MPI_STATUS_IGNORE)
        status->MPI_ERROR = code;
    return code;
}

static int take_all(int n, MPI_Request handles[], MPI_Status statuses[])
{
    bool failed = false;

    for (int i = 0; i < n; i++)
        failed |= take_into(handles + i, status_at(statuses, i)) != MPI_SUCCESS;
    return failed ? psc_mpi_raise(NULL, MPI_ERR_IN_STATUS) : MPI_SUCCESS;
}

int MPI_Waitall(int n, MPI_Request handles[], MPI_Status statuses[])
{
    int code = check_handles(n, handles);

    for (int i = 0; i < n && code == MPI_SUCCESS; i++) {
        const psc_mpi_request_t *request = psc_mpi_request_find(handles[i]);

        if (request)
            code = wait_for(request);
    }
    return code == MPI_SUCCESS ? take_all(n, handles, statuses)
                               : psc_mpi_raise(NULL, code);
}

static bool all_ended(int n, const MPI_Request handles[])
{
    for (int i = 0; i < n; i++) {
        const psc_mpi_request_t *request = psc_mpi_request_find(handles[i]);

        if (request && !has_ended(request))
            return false;
    }
    return true;
}

int MPI_Testall(int n, MPI_Request handles[], int *flag, MPI_Status statuses[])
{
    int code = check_handles(n, handles);

    if (code != MPI_SUCCESS)
        return psc_mpi_raise(NULL, code);
    if (!all_ended(n, handles))
        progress();
    *flag = all_ended(n, handles);
    return *flag ? take_all(n, handles, statuses) : MPI_SUCCESS;
}

/* ---- any ---- */

/* Returns the index of the first active request that has ended; -1 if none has;
 * MPI_UNDEFINED if none is active. */
static int find_ended(int n, const MPI_Request handles[])
{
    int found = MPI_UNDEFINED;

    for (int i = 0; i < n; i++) {
        const psc_mpi_request_t *request = psc_mpi_request_find(handles[i]);

        if (!is_active(request))
            continue;
        if (has_ended(request))
            return i;
        found = -1;
    }
    return found;
}

/* Wait until something has happened to one of the requests. */
static int wait_any(int n, const MPI_Request handles[])
{
    psc_request_t **cores = malloc((size_t)n * sizeof(psc_request_t *));
    size_t n_cores = 0;
    int code = cores ? MPI_SUCCESS : MPI_ERR_NO_MEM;

    for (int i = 0; i < n && cores; i++) {
        const psc_mpi_request_t *request = psc_mpi_request_find(handles[i]);

        if (is_active(request) &&
            (cores[n_cores] = psc_mpi_request_pending(request)))
            n_cores++;
    }
    if (n_cores > 0)
        code = psc_mpi_wait(cores, n_cores, PSC_WAIT_ANY);
    free(cores);
    return code;
}

static int take_any(MPI_Request handles[], int found, int *index,
                    MPI_Status *status)
{
    *index = found;
    if (found != MPI_UNDEFINED)
        return take(handles + found, psc_mpi_request_find(handles[found]),
                    status);
    psc_mpi_status_empty(status);
    return MPI_SUCCESS;
}

int MPI_Waitany(int n, MPI_Request handles[], int *index, MPI_Status *status)
{
    int code = check_handles(n, handles), found = -1;

    while (code == MPI_SUCCESS && (found = find_ended(n, handles)) == -1)
        code = wait_any(n, handles);
    return code == MPI_SUCCESS ? take_any(handles, found, index, status)
                               : psc_mpi_raise(NULL, code);
}

int MPI_Testany(int n, MPI_Request handles[], int *index, int *flag,
                MPI_Status *status)
{
    int code = check_handles(n, handles), found;

    if (code != MPI_SUCCESS)
        return psc_mpi_raise(NULL, code);
    found = find_ended(n, handles);
    if (found == -1) {
        progress();
        found = find_ended(n, handles);
    }
    *flag = found != -1;
    *index = MPI_UNDEFINED;
    return *flag ? take_any(handles, found, index, status) : MPI_SUCCESS;
}

/* ---- some ---- */

static int take_some(int n, MPI_Request handles[], int *n_taken, int index[],
                     MPI_Status statuses[])
{
    bool failed = false;

    *n_taken = 0;
    for (int i = 0; i < n; i++) {
        const psc_mpi_request_t *request = psc_mpi_request_find(handles[i]);

        if (!is_active(request) || !has_ended(request))
            continue;
        failed |= take_into(handles + i, status_at(statuses, *n_taken)) !=
                  MPI_SUCCESS;
        index[(*n_taken)++] = i;
    }
    return failed ? psc_mpi_raise(NULL, MPI_ERR_IN_STATUS) : MPI_SUCCESS;
}

int MPI_Waitsome(int n, MPI_Request handles[], int *n_taken, int index[],
                 MPI_Status statuses[])
{
    int code = check_handles(n, handles), found = -1;

    while (code == MPI_SUCCESS && (found = find_ended(n, handles)) == -1)
        code = wait_any(n, handles);
    if (code != MPI_SUCCESS)
        return psc_mpi_raise(NULL, code);
    if (found != MPI_UNDEFINED)
        return take_some(n, handles, n_taken, index, statuses);
    *n_taken = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

int MPI_Testsome(int n, MPI_Request handles[], int *n_taken, int index[],
                 MPI_Status statuses[])
{
    int code = check_handles(n, handles);

    if (code != MPI_SUCCESS)
        return psc_mpi_raise(NULL, code);
    progress();
    if (find_ended(n, handles) != MPI_UNDEFINED)
        return take_some(n, handles, n_taken, index, statuses);
    *n_taken = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

/* ---- without taking them ---- */

static int look(MPI_Request handle, MPI_Status *status)
{
    psc_mpi_request_t *request = psc_mpi_request_find(handle);

    if (request)
        return psc_mpi_request_report(request, status);
    psc_mpi_status_empty(status);
    return MPI_SUCCESS;
}

int MPI_Request_get_status(MPI_Request handle, int *flag, MPI_Status *status)
{
    return MPI_Request_get_status_all(1, &handle, flag, status);
}

int MPI_Request_get_status_all(int n, const MPI_Request handles[], int *flag,
                               MPI_Status statuses[])
{
    int code = check_handles(n, handles);

    if (code != MPI_SUCCESS)
        return psc_mpi_raise(NULL, code);
    progress();
    *flag = all_ended(n, handles);
    for (int i = 0; i < n && *flag; i++)
        look(handles[i], status_at(statuses, i));
    return MPI_SUCCESS;
}

int MPI_Request_get_status_any(int n, const MPI_Request handles[], int *index,
                               int *flag, MPI_Status *status)
{
    int code = check_handles(n, handles), found;

    if (code != MPI_SUCCESS)
        return psc_mpi_raise(NULL, code);
    progress();
    found = find_ended(n, handles);
    *flag = found != -1;
    *index = *flag ? found : MPI_UNDEFINED;
    if (*flag)
        look(found == MPI_UNDEFINED ? MPI_REQUEST_NULL : handles[found],
             status);
    return MPI_SUCCESS;
}

int MPI_Request_get_status_some(int n, const MPI_Request handles[],
                                int *n_found, int index[],
                                MPI_Status statuses[])
{
    int code = check_handles(n, handles);

    if (code != MPI_SUCCESS)
        return psc_mpi_raise(NULL, code);
    progress();
    *n_found = find_ended(n, handles) == MPI_UNDEFINED ? MPI_UNDEFINED : 0;
    for (int i = 0; i < n && *n_found != MPI_UNDEFINED; i++) {
        const psc_mpi_request_t *request = psc_mpi_request_find(handles[i]);

        if (!is_active(request) || !has_ended(request))
            continue;
        look(handles[i], status_at(statuses, *n_found));
        index[(*n_found)++] = i;
    }
    return MPI_SUCCESS;
}
