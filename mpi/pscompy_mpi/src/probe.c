/* Probes, and messages that were matched by a probe (MPI_Mprobe). */
#include "library.h"

/* ---- probes ---- */

int MPI_Probe(int source, int tag, MPI_Comm handle, MPI_Status *status)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);
    psc_request_t *core = NULL;
    psc_recv_args_t args;
    psc_result_t result;
    int code =
        comm ? psc_mpi_recv_args(comm, source, tag, &args) : MPI_ERR_COMM;
    psc_status_t begun;

    if (code == PSC_MPI_NO_PEER) {
        psc_mpi_status_proc_null(status);
        return MPI_SUCCESS;
    }
    if (code == MPI_SUCCESS) {
        begun =
            psc_mpi.host.api->probe(psc_mpi.host.worker, &args, &result, &core);
        if (begun < PSC_OK)
            code = psc_mpi_error_of(begun, -1);
        else if (begun == PSC_INPROGRESS)
            code = psc_mpi_finish(core, &result);
    }
    if (code == MPI_SUCCESS && result.status != PSC_OK)
        code = psc_mpi_error_of(result.status, psc_mpi_comm_peer(comm, source));
    if (code != MPI_SUCCESS)
        return psc_mpi_raise(comm, code);
    psc_mpi_status_of(status, comm, &result);
    return MPI_SUCCESS;
}

/* Returns MPI_ERR_PENDING if there is no message. */
static int iprobe(psc_mpi_comm_t *comm, const psc_recv_args_t *args,
                  MPI_Status *status)
{
    psc_result_t result;
    psc_status_t found =
        psc_mpi.host.api->iprobe(psc_mpi.host.worker, args, &result);

    if (found == PSC_INPROGRESS)
        return MPI_ERR_PENDING;
    if (found != PSC_OK)
        return psc_mpi_error_of(found, -1);
    psc_mpi_status_of(status, comm, &result);
    return MPI_SUCCESS;
}

int MPI_Iprobe(int source, int tag, MPI_Comm handle, int *flag,
               MPI_Status *status)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);
    psc_recv_args_t args;
    int code =
        comm ? psc_mpi_recv_args(comm, source, tag, &args) : MPI_ERR_COMM;

    if (code == MPI_SUCCESS)
        code = iprobe(comm, &args, status);
    *flag = code == MPI_SUCCESS || code == PSC_MPI_NO_PEER;
    if (code == PSC_MPI_NO_PEER)
        psc_mpi_status_proc_null(status);
    else if (code != MPI_SUCCESS && code != MPI_ERR_PENDING)
        return psc_mpi_raise(comm, code);
    return MPI_SUCCESS;
}

/* ---- matched messages ---- */

/* Start a receive that stops when it has matched. */
static int match_start(psc_mpi_comm_t *comm, int source, psc_recv_args_t *args,
                       psc_mpi_request_t **request_p)
{
    psc_mpi_request_t *request = *request_p = psc_mpi_request_create(comm);
    psc_status_t begun;

    if (!request)
        return MPI_ERR_NO_MEM;
    request->receives = true;
    request->transfer.peer = source;
    args->flags = PSC_FLAG_NO_BUFFER;
    begun = psc_mpi.host.api->recv(psc_mpi.host.worker, args, &request->result,
                                   &request->core);
    if (begun >= PSC_OK || begun == PSC_ERR_TRUNCATED)
        return MPI_SUCCESS;
    return psc_mpi_error_of(begun, -1);
}

/* The receive has matched, or has failed. */
static int match_end(psc_mpi_request_t *request, MPI_Message *message,
                     MPI_Status *status)
{
    const psc_result_t *result =
        request->core ? &request->core->result : &request->result;

    if (result->status != PSC_OK)
        return psc_mpi_error_of(
            result->status,
            psc_mpi_comm_peer(request->comm, request->transfer.peer));
    psc_mpi_status_of(status, request->comm, result);
    *message = psc_mpi_object_handle(request);
    return MPI_SUCCESS;
}

int MPI_Mprobe(int source, int tag, MPI_Comm handle, MPI_Message *message,
               MPI_Status *status)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);
    psc_mpi_request_t *request = NULL;
    psc_recv_args_t args;
    int code =
        comm ? psc_mpi_recv_args(comm, source, tag, &args) : MPI_ERR_COMM;

    if (code == PSC_MPI_NO_PEER) {
        *message = MPI_MESSAGE_NO_PROC;
        psc_mpi_status_proc_null(status);
        return MPI_SUCCESS;
    }
    if (code == MPI_SUCCESS)
        code = match_start(comm, source, &args, &request);
    if (code == MPI_SUCCESS && request->core)
        code = psc_mpi_wait(&request->core, 1, PSC_WAIT_ALL);
    if (code == MPI_SUCCESS)
        code = match_end(request, message, status);
    if (code == MPI_SUCCESS)
        return code;
    if (request)
        psc_mpi_request_give_up(request);
    return psc_mpi_raise(comm, code);
}

/* Another thread may take the message between the probe and the receive. */
static int match_now(psc_mpi_comm_t *comm, int source, psc_recv_args_t *args,
                     MPI_Message *message, MPI_Status *status)
{
    const psc_api_t *api = psc_mpi.host.api;
    psc_mpi_request_t *request = NULL;
    int code = iprobe(comm, args, status);

    if (code != MPI_SUCCESS)
        return code;
    code = match_start(comm, source, args, &request);
    if (code == MPI_SUCCESS && request->core &&
        psc_request_state(request->core) == PSC_REQUEST_ACTIVE &&
        api->cancel(request->core) == PSC_OK)
        code = MPI_ERR_PENDING;
    if (code == MPI_SUCCESS)
        code = match_end(request, message, status);
    if (code != MPI_SUCCESS && request)
        psc_mpi_request_free(request);
    return code;
}

int MPI_Improbe(int source, int tag, MPI_Comm handle, int *flag,
                MPI_Message *message, MPI_Status *status)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);
    psc_recv_args_t args;
    int code =
        comm ? psc_mpi_recv_args(comm, source, tag, &args) : MPI_ERR_COMM;

    if (code == MPI_SUCCESS)
        code = match_now(comm, source, &args, message, status);
    *flag = code == MPI_SUCCESS || code == PSC_MPI_NO_PEER;
    if (code == PSC_MPI_NO_PEER) {
        *message = MPI_MESSAGE_NO_PROC;
        psc_mpi_status_proc_null(status);
    } else if (code == MPI_ERR_PENDING) {
        *message = MPI_MESSAGE_NULL;
    } else if (code != MPI_SUCCESS) {
        return psc_mpi_raise(comm, code);
    }
    return MPI_SUCCESS;
}

/* ---- receiving them ---- */

/* Give a matched message its memory; it is an ordinary request from then on. */
static int supply(psc_mpi_request_t *request, void *buffer, MPI_Count count,
                  MPI_Datatype type)
{
    psc_mpi_data_t *data = &request->data;
    int code = psc_mpi_data_of(data, buffer, count, type);
    psc_status_t status = PSC_OK;

    if (code == MPI_SUCCESS)
        code = psc_mpi_data_to_receive(data);
    if (code != MPI_SUCCESS)
        return code;
    if (request->core &&
        psc_request_state(request->core) == PSC_REQUEST_MATCHED)
        status = psc_mpi.host.api->recv_supply(
            request->core, psc_mpi_data_iov(data), data->n_iov);
    return status >= PSC_OK ? MPI_SUCCESS : psc_mpi_error_of(status, -1);
}

int MPI_Imrecv_c(void *buffer, MPI_Count count, MPI_Datatype type,
                 MPI_Message *message, MPI_Request *handle)
{
    psc_mpi_request_t *request = psc_mpi_request_find(*message);
    int code;

    if (*message == MPI_MESSAGE_NO_PROC) {
        request = psc_mpi_request_create(psc_mpi_comm_find(MPI_COMM_SELF));
        if (request)
            request->no_peer = request->receives = true;
    }
    if (!request)
        return psc_mpi_raise(NULL, MPI_ERR_REQUEST);
    code =
        request->no_peer ? MPI_SUCCESS : supply(request, buffer, count, type);
    if (code != MPI_SUCCESS)
        return psc_mpi_raise(request->comm, code);
    *message = MPI_MESSAGE_NULL;
    *handle = psc_mpi_object_handle(request);
    return MPI_SUCCESS;
}

int MPI_Mrecv_c(void *buffer, MPI_Count count, MPI_Datatype type,
                MPI_Message *message, MPI_Status *status)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Imrecv_c(buffer, count, type, message, &request);

    return code == MPI_SUCCESS ? psc_mpi_request_finish(request, status) : code;
}
