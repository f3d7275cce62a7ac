/* Requests: their lives, persistent and generalised ones, cancelling.
 * complete.c has the functions that wait for them. */
#include "library.h"

#include <stdlib.h>

static psc_mpi_table_t requests =
    PSC_MPI_TABLE(PSC_MPI_REQUEST, psc_mpi_request_t, 0);

/* Requests that the program has freed, whose memory the core still uses. They
 * are ended by later calls. */
static psc_mpi_request_t *left;
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint n_left;

static bool in_flight(const psc_request_t *core)
{
    return core && psc_request_state(core) == PSC_REQUEST_ACTIVE;
}

/* Takes the requests that are in flight no more from the list; returns them as
 * a list. Calls nothing of the program, because it holds the lock. */
static psc_mpi_request_t *left_take(void)
{
    psc_mpi_request_t **at = &left, *taken = NULL, *request;

    pthread_mutex_lock(&left_lock);
    while ((request = *at)) {
        if (in_flight(request->core) || in_flight(request->second)) {
            at = &request->next_left;
            continue;
        }
        *at = request->next_left;
        request->next_left = taken;
        taken = request;
        atomic_fetch_sub(&n_left, 1);
    }
    pthread_mutex_unlock(&left_lock);
    return taken;
}

static void left_push(psc_mpi_request_t *request)
{
    pthread_mutex_lock(&left_lock);
    request->next_left = left;
    left = request;
    atomic_fetch_add(&n_left, 1);
    pthread_mutex_unlock(&left_lock);
}

void psc_mpi_requests_sweep(void)
{
    psc_mpi_request_t *request, *next;

    if (!atomic_load_explicit(&n_left, memory_order_relaxed))
        return;
    for (request = left_take(); request; request = next) {
        next = request->next_left;
        psc_mpi_request_free(request);
    }
}

psc_mpi_request_t *psc_mpi_request_create(psc_mpi_comm_t *comm)
{
    psc_mpi_request_t *request;

    psc_mpi_requests_sweep();
    request = psc_mpi_object_create(&requests);
    if (request && comm) {
        request->comm = comm;
        psc_mpi_comm_hold(comm);
    }
    return request;
}

psc_mpi_request_t *psc_mpi_request_find(MPI_Request request)
{
    return psc_mpi_running() ? psc_mpi_object_find(&requests, request) : NULL;
}

/* The core still uses the request's memory: the layout of a receive, the copy
 * of what is sent, or what a collective combines. */
static bool request_in_use(const psc_mpi_request_t *request)
{
    return psc_mpi_request_pending(request) != NULL &&
           (request->copy || request->coll ||
            request->data.kind == PSC_MPI_STRIDED ||
            request->data.kind == PSC_MPI_PACKED);
}

static void core_free(const psc_mpi_request_t *request)
{
    if (request->coll)
        psc_mpi_coll_release(request->coll, request->core);
    else
        psc_mpi.host.api->request_free(request->core);
}

/* The program has freed a receive: deliver what nobody waits for. */
static void request_land(psc_mpi_request_t *request)
{
    const psc_result_t *result =
        request->core ? &request->core->result : &request->result;

    if (result->status == PSC_OK || result->status == PSC_ERR_TRUNCATED)
        psc_mpi_data_land(&request->data, (MPI_Count)result->nbytes);
}

static void request_end(psc_mpi_request_t *request)
{
    const psc_api_t *api = psc_mpi.host.api;
    psc_mpi_comm_t *comm = request->comm;

    if (request->receives && request->data.packed)
        request_land(request);
    if (request->core)
        core_free(request);
    if (request->second)
        api->request_free(request->second);
    free(request->copy);
    psc_mpi_data_free(&request->data);
    psc_mpi_coll_free(request->coll);
    psc_mpi_object_free(&requests, request);
    if (comm)
        psc_mpi_comm_let_go(comm);
}

void psc_mpi_request_free(psc_mpi_request_t *request)
{
    if (request_in_use(request)) {
        psc_mpi_object_hide(request);
        left_push(request);
    } else {
        request_end(request);
    }
}

/* ---- ending ---- */

static bool request_ended(const psc_request_t *core)
{
    return !core || psc_request_state(core) == PSC_REQUEST_DONE;
}

/* A collective is to call a function of the program. */
static void request_call(const psc_mpi_request_t *request)
{
    while (request->coll && request->core &&
           psc_request_state(request->core) == PSC_REQUEST_MATCHED &&
           psc_mpi.host.api->coll_call(request->core) == PSC_OK)
        ;
}

psc_request_t *psc_mpi_request_pending(const psc_mpi_request_t *request)
{
    request_call(request);
    if (!request_ended(request->core))
        return request->core;
    return request_ended(request->second) ? NULL : request->second;
}

static int report_generalised(psc_mpi_request_t *request, MPI_Status *status)
{
    MPI_Status own;
    MPI_Status *filled = status == MPI_STATUS_IGNORE ? &own : status;

    psc_mpi_status_empty(filled);
    return request->query_fn(request->state, filled);
}

static int report_result(psc_mpi_request_t *request, const psc_result_t *result,
                         MPI_Status *status)
{
    const psc_mpi_transfer_t *it = &request->transfer;

    if (request->code != MPI_SUCCESS)
        return request->code;
    if (request->coll)
        return psc_mpi_coll_land(request->comm, request->coll, result);
    if (result->status == PSC_ERR_CANCELLED) {
        psc_mpi_status_empty(status);
        psc_mpi_status_cancelled(status, true);
        return MPI_SUCCESS;
    }
    if (request->receives)
        return psc_mpi_recv_report(request->comm, it->peer, result,
                                   &request->data, status);
    psc_mpi_status_empty(status);
    if (result->status == PSC_OK)
        return MPI_SUCCESS;
    return psc_mpi_error_of(result->status,
                            psc_mpi_comm_member(request->comm, it->peer));
}

static int report_second(const psc_mpi_request_t *request)
{
    const psc_request_t *second = request->second;

    if (!second || second->result.status == PSC_OK)
        return MPI_SUCCESS;
    return psc_mpi_error_of(
        second->result.status,
        psc_mpi_comm_member(request->comm, request->second_peer));
}

int psc_mpi_request_report(psc_mpi_request_t *request, MPI_Status *status)
{
    int code;

    psc_mpi_requests_sweep();
    if (!request->comm)
        return report_generalised(request, status);
    psc_mpi_status_empty(status);
    if (request->persistent && !request->active)
        return MPI_SUCCESS;
    if (request->no_peer) {
        if (request->receives)
            psc_mpi_status_proc_null(status);
        return report_second(request);
    }
    code = report_result(
        request, request->core ? &request->core->result : &request->result,
        status);
    return code == MPI_SUCCESS ? report_second(request) : code;
}

/* The operation of a persistent request has ended. */
static void request_rest(psc_mpi_request_t *request)
{
    if (request->core)
        core_free(request);
    request->core = NULL;
    request->active = false;
}

/* The program has let a generalised request go, and it has ended. */
static int request_end_generalised(psc_mpi_request_t *request)
{
    int code = request->free_fn(request->state);

    psc_mpi_request_free(request);
    return code;
}

int psc_mpi_request_take(MPI_Request *handle, psc_mpi_request_t *request,
                         MPI_Status *status)
{
    int code = psc_mpi_request_report(request, status);
    int freed = MPI_SUCCESS;

    if (request->persistent) {
        request_rest(request);
        return code;
    }
    *handle = MPI_REQUEST_NULL;
    if (request->comm)
        psc_mpi_request_free(request);
    else
        freed = request_end_generalised(request);
    return code == MPI_SUCCESS ? freed : code;
}

/* ---- giving up ---- */

/* The send is first: it may wait for a receive of a peer that is giving up as
 * well, and whose send needs this receive. */
void psc_mpi_request_give_up(psc_mpi_request_t *request)
{
    psc_mpi_give_up(request->second);
    psc_mpi_give_up(request->core);
    psc_mpi_request_free(request);
}

int psc_mpi_request_finish(MPI_Request handle, MPI_Status *status)
{
    int code = MPI_Wait(&handle, status);
    psc_mpi_request_t *request = psc_mpi_request_find(handle);

    if (request)
        psc_mpi_request_give_up(request);
    return code;
}

/* ---- requests of what a thread of Python does ---- */

MPI_Request psc_mpi_request_promise(MPI_Comm comm)
{
    const psc_mpi_host_t *host = &psc_mpi.host;
    psc_mpi_request_t *request =
        psc_mpi_request_create(psc_mpi_comm_find(comm));

    if (!request)
        return MPI_REQUEST_NULL;
    if (host->api->event_create(host->worker, 0, NULL, &request->core) ==
        PSC_OK)
        return psc_mpi_object_handle(request);
    psc_mpi_request_free(request);
    return MPI_REQUEST_NULL;
}

void psc_mpi_request_keep(MPI_Request handle, int code)
{
    psc_mpi_request_t *request = psc_mpi_request_find(handle);

    if (!request)
        return;
    request->code = code;
    psc_mpi.host.api->event_complete(request->core, PSC_OK);
}

/* ---- functions ---- */

int MPI_Request_free(MPI_Request *handle)
{
    psc_mpi_request_t *request = psc_mpi_request_find(*handle);

    if (!request)
        return psc_mpi_raise(NULL, MPI_ERR_REQUEST);
    *handle = MPI_REQUEST_NULL;
    if (request->comm)
        psc_mpi_request_free(request);
    else if (!psc_mpi_request_pending(request))
        return request_end_generalised(request);
    else
        atomic_store(&request->let_go, true);
    return MPI_SUCCESS;
}

static int start(MPI_Request handle)
{
    psc_mpi_request_t *request = psc_mpi_request_find(handle);
    int code;

    if (!request || !request->persistent || request->active)
        return psc_mpi_raise(NULL, MPI_ERR_REQUEST);
    code = psc_mpi_request_start(request);
    return code == MPI_SUCCESS ? code : psc_mpi_raise(request->comm, code);
}

int MPI_Start(MPI_Request *handle)
{
    return start(*handle);
}

int MPI_Startall(int n, MPI_Request handles[])
{
    int code = n < 0 ? psc_mpi_raise(NULL, MPI_ERR_COUNT) : MPI_SUCCESS;

    for (int i = 0; i < n && code == MPI_SUCCESS; i++)
        code = start(handles[i]);
    return code;
}

int MPI_Cancel(MPI_Request *handle)
{
    psc_mpi_request_t *request = psc_mpi_request_find(*handle);

    if (!request || (request->persistent && !request->active))
        return psc_mpi_raise(NULL, MPI_ERR_REQUEST);
    if (!request->comm)
        return request->cancel_fn(request->state,
                                  !psc_mpi_request_pending(request));
    if (!request_ended(request->core))
        psc_mpi.host.api->cancel(request->core);
    return MPI_SUCCESS;
}

/* ---- generalised requests ---- */

int MPI_Grequest_start(MPI_Grequest_query_function *query_fn,
                       MPI_Grequest_free_function *free_fn,
                       MPI_Grequest_cancel_function *cancel_fn, void *state,
                       MPI_Request *handle)
{
    const psc_mpi_host_t *host = &psc_mpi.host;
    psc_mpi_request_t *request =
        psc_mpi_running() ? psc_mpi_request_create(NULL) : NULL;

    if (!request || host->api->event_create(host->worker, 0, NULL,
                                            &request->core) != PSC_OK)
        return psc_mpi_raise(NULL, MPI_ERR_OTHER);
    request->state = state;
    request->query_fn = query_fn;
    request->free_fn = free_fn;
    request->cancel_fn = cancel_fn;
    *handle = psc_mpi_object_handle(request);
    return MPI_SUCCESS;
}

int MPI_Grequest_complete(MPI_Request handle)
{
    psc_mpi_request_t *request = psc_mpi_request_find(handle);

    if (!request || request->comm)
        return psc_mpi_raise(NULL, MPI_ERR_REQUEST);
    psc_mpi.host.api->event_complete(request->core, PSC_OK);
    return atomic_load(&request->let_go) ? request_end_generalised(request)
                                         : MPI_SUCCESS;
}
