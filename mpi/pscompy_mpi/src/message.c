/* Messages: sends and receives, blocking or not. */
#include "library.h"

#include <stdlib.h>

/* A receive polls this often before it gets a request, unless it is of a long
 * message, which takes a request anyway. */
#define POLLS 250u
#define POLL_BYTES (16 << 10)

/* ---- arguments ---- */

static int check_tag(int tag, bool any)
{
    return tag >= 0 || (any && tag == MPI_ANY_TAG) ? MPI_SUCCESS : MPI_ERR_TAG;
}

static int check_rank(const psc_mpi_comm_t *comm, int rank)
{
    if (rank == MPI_PROC_NULL)
        return PSC_MPI_NO_PEER;
    return rank >= 0 && rank < comm->n_peers ? MPI_SUCCESS : MPI_ERR_RANK;
}

static int check_transfer(const psc_mpi_comm_t *comm,
                          const psc_mpi_transfer_t *it)
{
    int code = check_tag(it->tag, it->receives);

    if (code != MPI_SUCCESS)
        return code;
    if (it->receives && it->peer == MPI_ANY_SOURCE)
        return MPI_SUCCESS;
    return check_rank(comm, it->peer);
}

int psc_mpi_recv_args(const psc_mpi_comm_t *comm, int source, int tag,
                      psc_recv_args_t *args)
{
    const psc_mpi_transfer_t it = {
        .receives = true, .peer = source, .tag = tag};
    int code = check_transfer(comm, &it);

    if (code != MPI_SUCCESS)
        return code;
    *args = (psc_recv_args_t){.context = comm->context, .tag = tag};
    if (source == MPI_ANY_SOURCE)
        return MPI_SUCCESS;
    args->source = psc_mpi_comm_conn(comm, source);
    return args->source ? MPI_SUCCESS
                        : psc_mpi_error_of(PSC_ERR_CONNECT,
                                           psc_mpi_comm_member(comm, source));
}

/* ---- starting ---- */

static int send_to(psc_conn_t *conn, const psc_send_args_t *args, bool strided,
                   psc_request_t **core_p)
{
    const psc_api_t *api = psc_mpi.host.api;

    return strided ? api->send_strided(conn, args, core_p)
                   : api->send(conn, args, core_p);
}

int psc_mpi_send_start(psc_mpi_comm_t *comm, const psc_mpi_transfer_t *it,
                       psc_mpi_data_t *data, psc_request_t **core_p)
{
    psc_send_args_t args = {
        .context = comm->context, .tag = it->tag, .flags = it->flags};
    int code = check_transfer(comm, it), status;
    psc_conn_t *conn;

    if (code == MPI_SUCCESS)
        code = psc_mpi_data_to_send(data);
    if (code != MPI_SUCCESS)
        return code;
    args.iov = psc_mpi_data_iov(data);
    args.n_iov = data->n_iov;
    conn = psc_mpi_comm_conn(comm, it->peer);
    status = conn ? send_to(conn, &args, data->kind == PSC_MPI_STRIDED, core_p)
                  : PSC_ERR_CONNECT;
    if (status >= PSC_OK)
        return MPI_SUCCESS;
    return psc_mpi_error_of(status, psc_mpi_comm_member(comm, it->peer));
}

int psc_mpi_recv_start(psc_mpi_comm_t *comm, const psc_mpi_transfer_t *it,
                       psc_mpi_data_t *data, psc_result_t *result,
                       psc_request_t **core_p)
{
    psc_recv_args_t args;
    int code = psc_mpi_recv_args(comm, it->peer, it->tag, &args);
    psc_status_t status;

    if (code == MPI_SUCCESS)
        code = psc_mpi_data_to_receive(data);
    if (code != MPI_SUCCESS)
        return code;
    args.iov = psc_mpi_data_iov(data);
    args.n_iov = data->n_iov;
    args.flags = it->flags;
    args.polls = data->nbytes <= POLL_BYTES ? POLLS : 0;
    status = psc_mpi.host.api->recv(psc_mpi.host.worker, &args, result, core_p);
    if (status >= PSC_OK || status == PSC_ERR_TRUNCATED)
        return MPI_SUCCESS;
    return psc_mpi_error_of(status, psc_mpi_comm_peer(comm, it->peer));
}

int psc_mpi_request_start(psc_mpi_request_t *request)
{
    const psc_mpi_transfer_t *it = &request->transfer;
    int code;

    request->result = (psc_result_t){.status = PSC_OK, .rank = -1};
    if (request->coll)
        code = psc_mpi_coll_start(request->comm, request->coll, &request->core);
    else if (it->receives)
        code = psc_mpi_recv_start(request->comm, it, &request->data,
                                  &request->result, &request->core);
    else if (it->buffered)
        code = psc_mpi_send_buffered(request->comm, it, &request->data);
    else
        code = psc_mpi_send_start(request->comm, it, &request->data,
                                  &request->core);
    request->no_peer = code == PSC_MPI_NO_PEER;
    request->active = code == MPI_SUCCESS || request->no_peer;
    return request->active ? MPI_SUCCESS : code;
}

/* ---- ending ---- */

/* Wait until the request has ended, whatever signals arrive. */
static void outlast(psc_request_t *core)
{
    const psc_mpi_host_t *host = &psc_mpi.host;
    void *state = host->gil_held() ? host->gil_release() : NULL;
    psc_status_t status;

    do {
        status = host->api->wait(host->worker, &core, 1,
                                 PSC_WAIT_ALL | PSC_WAIT_OWN, PSC_FOREVER);
    } while (status == PSC_ERR_INTERRUPTED || status == PSC_INPROGRESS);
    if (state)
        host->gil_take(state);
}

void psc_mpi_give_up(psc_request_t *core)
{
    if (core && psc_mpi.host.api->cancel(core) != PSC_OK)
        outlast(core);
}

int psc_mpi_finish(psc_request_t *core, psc_result_t *result)
{
    int code = psc_mpi_wait(&core, 1, PSC_WAIT_ALL);

    if (code == MPI_SUCCESS)
        *result = core->result;
    else
        psc_mpi_give_up(core);
    psc_mpi.host.api->request_free(core);
    return code;
}

int psc_mpi_recv_report(const psc_mpi_comm_t *comm, int peer,
                        const psc_result_t *result, psc_mpi_data_t *data,
                        MPI_Status *status)
{
    psc_mpi_status_of(status, comm, result);
    if (result->status == PSC_OK || result->status == PSC_ERR_TRUNCATED)
        psc_mpi_data_land(data, (MPI_Count)result->nbytes);
    if (result->status == PSC_OK)
        return MPI_SUCCESS;
    if (result->status == PSC_ERR_TRUNCATED)
        psc_mpi_status_set(status, psc_mpi_comm_rank_of(comm, result->rank),
                           result->tag, data->nbytes);
    return psc_mpi_error_of(result->status, psc_mpi_comm_peer(comm, peer));
}

/* ---- blocking ---- */

/* The first step of every function: find the communicator and the memory. */
static int transfer_begin(const psc_mpi_transfer_t *it, psc_mpi_comm_t **comm_p,
                          psc_mpi_data_t *data)
{
    int code = psc_mpi_data_of(data, it->buffer, it->count, it->type);

    *comm_p = psc_mpi_comm_find(it->comm);
    return *comm_p ? code : MPI_ERR_COMM;
}

static int send_end(psc_mpi_comm_t *comm, const psc_mpi_transfer_t *it,
                    psc_request_t *core)
{
    psc_result_t result = {.status = PSC_OK};
    int code = core ? psc_mpi_finish(core, &result) : MPI_SUCCESS;

    if (code != MPI_SUCCESS || result.status == PSC_OK)
        return code;
    return psc_mpi_error_of(result.status, psc_mpi_comm_member(comm, it->peer));
}

static int send(const psc_mpi_transfer_t *it)
{
    psc_mpi_comm_t *comm;
    psc_mpi_data_t data;
    psc_request_t *core = NULL;
    int code = transfer_begin(it, &comm, &data);

    if (code == MPI_SUCCESS && it->buffered)
        code = psc_mpi_send_buffered(comm, it, &data);
    else if (code == MPI_SUCCESS)
        code = psc_mpi_send_start(comm, it, &data, &core);
    if (code == MPI_SUCCESS)
        code = send_end(comm, it, core);
    psc_mpi_data_free(&data);
    psc_mpi_requests_sweep();
    return code == MPI_SUCCESS || code == PSC_MPI_NO_PEER
               ? MPI_SUCCESS
               : psc_mpi_raise(comm, code);
}

static int recv_end(psc_mpi_comm_t *comm, int peer, psc_mpi_data_t *data,
                    psc_result_t *result, psc_request_t *core,
                    MPI_Status *status)
{
    int code = core ? psc_mpi_finish(core, result) : MPI_SUCCESS;

    return code == MPI_SUCCESS
               ? psc_mpi_recv_report(comm, peer, result, data, status)
               : code;
}

static int recv(const psc_mpi_transfer_t *it, MPI_Status *status)
{
    psc_result_t result = {.status = PSC_OK};
    psc_mpi_comm_t *comm;
    psc_mpi_data_t data;
    psc_request_t *core = NULL;
    int code = transfer_begin(it, &comm, &data);

    if (code == MPI_SUCCESS)
        code = psc_mpi_recv_start(comm, it, &data, &result, &core);
    if (code == MPI_SUCCESS)
        code = recv_end(comm, it->peer, &data, &result, core, status);
    psc_mpi_data_free(&data);
    psc_mpi_requests_sweep();
    if (code == PSC_MPI_NO_PEER)
        psc_mpi_status_proc_null(status);
    else if (code != MPI_SUCCESS)
        return psc_mpi_raise(comm, code);
    return MPI_SUCCESS;
}

/* ---- with a request ---- */

static int request_begin(const psc_mpi_transfer_t *it, psc_mpi_comm_t **comm_p,
                         psc_mpi_request_t **request_p)
{
    psc_mpi_comm_t *comm = *comm_p = psc_mpi_comm_find(it->comm);
    psc_mpi_request_t *request = comm ? psc_mpi_request_create(comm) : NULL;
    int code;

    if (!request)
        return comm ? MPI_ERR_NO_MEM : MPI_ERR_COMM;
    request->transfer = *it;
    request->receives = it->receives;
    code = psc_mpi_data_of(&request->data, it->buffer, it->count, it->type);
    if (code == MPI_SUCCESS)
        *request_p = request;
    else
        psc_mpi_request_free(request);
    return code;
}

static int start(const psc_mpi_transfer_t *it, MPI_Request *handle)
{
    psc_mpi_request_t *request = NULL;
    psc_mpi_comm_t *comm;
    int code = request_begin(it, &comm, &request);

    if (code == MPI_SUCCESS)
        code = psc_mpi_request_start(request);
    if (code == MPI_SUCCESS) {
        *handle = psc_mpi_object_handle(request);
        return MPI_SUCCESS;
    }
    if (request)
        psc_mpi_request_free(request);
    return psc_mpi_raise(comm, code);
}

static int prepare(const psc_mpi_transfer_t *it, MPI_Request *handle)
{
    psc_mpi_request_t *request = NULL;
    psc_mpi_comm_t *comm;
    int code = request_begin(it, &comm, &request);

    if (code == MPI_SUCCESS)
        code = check_transfer(comm, it);
    if (code == MPI_SUCCESS || code == PSC_MPI_NO_PEER) {
        request->persistent = true;
        *handle = psc_mpi_object_handle(request);
        return MPI_SUCCESS;
    }
    if (request)
        psc_mpi_request_free(request);
    return psc_mpi_raise(comm, code);
}

/* ---- functions ---- */

#define SEND_ARGUMENTS                                                         \
    const void *data, MPI_Count count, MPI_Datatype type, int dest, int tag,   \
        MPI_Comm comm

/* The functions for one mode of sending. */
#define SENDS(name, iname, how)                                                \
    int MPI_##name##_c(SEND_ARGUMENTS)                                         \
    {                                                                          \
        return send(                                                           \
            &(psc_mpi_transfer_t){data, count, type, dest, tag, comm, how});   \
    }                                                                          \
    int MPI_##iname##_c(SEND_ARGUMENTS, MPI_Request *request)                  \
    {                                                                          \
        return start(                                                          \
            &(psc_mpi_transfer_t){data, count, type, dest, tag, comm, how},    \
            request);                                                          \
    }                                                                          \
    int MPI_##name##_init_c(SEND_ARGUMENTS, MPI_Request *request)              \
    {                                                                          \
        return prepare(                                                        \
            &(psc_mpi_transfer_t){data, count, type, dest, tag, comm, how},    \
            request);                                                          \
    }

SENDS(Send, Isend, .flags = 0)
SENDS(Rsend, Irsend, .flags = 0)
SENDS(Ssend, Issend, .flags = PSC_FLAG_SYNC)
SENDS(Bsend, Ibsend, .buffered = true)

#define RECV_ARGUMENTS                                                         \
    void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag,     \
        MPI_Comm comm
#define RECV                                                                   \
    &(psc_mpi_transfer_t){buffer, count,           type, source, tag,          \
                          comm,   .receives = true}

int MPI_Recv_c(RECV_ARGUMENTS, MPI_Status *status)
{
    return recv(RECV, status);
}

int MPI_Irecv_c(RECV_ARGUMENTS, MPI_Request *request)
{
    return start(RECV, request);
}

int MPI_Recv_init_c(RECV_ARGUMENTS, MPI_Request *request)
{
    return prepare(RECV, request);
}
