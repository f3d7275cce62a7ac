/* A send and a receive at once: MPI_Sendrecv and its relatives. */
#include "library.h"

#include <stdlib.h>

/* Make the request of a receive, and start it. */
static int exchange_receive(psc_mpi_comm_t *comm, const psc_mpi_transfer_t *it,
                            psc_mpi_request_t **request_p)
{
    psc_mpi_request_t *request = psc_mpi_request_create(comm);
    int code;

    if (!request)
        return MPI_ERR_NO_MEM;
    *request_p = request;
    request->receives = true;
    request->transfer = *it;
    code = psc_mpi_data_of(&request->data, it->buffer, it->count, it->type);
    return code == MPI_SUCCESS ? psc_mpi_request_start(request) : code;
}

/* Start the receive and the send, which is the request's second operation. */
static int exchange_start(psc_mpi_comm_t *comm, const psc_mpi_transfer_t *out,
                          psc_mpi_data_t *data, const psc_mpi_transfer_t *in,
                          psc_mpi_request_t **request_p)
{
    int code = exchange_receive(comm, in, request_p);

    if (code == MPI_SUCCESS) {
        (*request_p)->second_peer = out->peer;
        code = psc_mpi_send_start(comm, out, data, &(*request_p)->second);
    }
    if (code == PSC_MPI_NO_PEER)
        code = MPI_SUCCESS;
    if (code == MPI_SUCCESS) { /* the request keeps what is being sent */
        (*request_p)->copy = data->packed;
        data->packed = NULL;
    }
    return code;
}

static int exchange(const psc_mpi_transfer_t *out, const psc_mpi_transfer_t *in,
                    MPI_Request *handle)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(out->comm);
    psc_mpi_request_t *request = NULL;
    psc_mpi_data_t data;
    int code = psc_mpi_data_of(&data, out->buffer, out->count, out->type);

    if (code == MPI_SUCCESS && !comm)
        code = MPI_ERR_COMM;
    if (code == MPI_SUCCESS)
        code = exchange_start(comm, out, &data, in, &request);
    psc_mpi_data_free(&data);
    if (code != MPI_SUCCESS) {
        if (request)
            psc_mpi_request_give_up(request);
        return psc_mpi_raise(comm, code);
    }
    *handle = psc_mpi_object_handle(request);
    return MPI_SUCCESS;
}

/* Send a copy of what is in the buffer, and receive into the buffer. */
static int exchange_in_place(const psc_mpi_transfer_t *out,
                             const psc_mpi_transfer_t *in, MPI_Request *handle)
{
    psc_mpi_transfer_t sent = *out;
    psc_mpi_data_t data;
    int code = psc_mpi_data_of(&data, out->buffer, out->count, out->type);
    void *copy = NULL;

    if (code == MPI_SUCCESS) {
        copy = malloc((size_t)data.nbytes + 1);
        code = copy ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    }
    if (copy)
        psc_mpi_data_pack(&data, copy);
    psc_mpi_data_free(&data);
    if (code != MPI_SUCCESS)
        return psc_mpi_raise(psc_mpi_comm_find(out->comm), code);
    sent.buffer = copy;
    sent.count = data.nbytes;
    sent.type = MPI_BYTE;
    code = exchange(&sent, in, handle);
    if (code == MPI_SUCCESS)
        psc_mpi_request_find(*handle)->copy = copy;
    else
        free(copy);
    return code;
}

/* ---- functions ---- */

#define EXCHANGE_ARGUMENTS                                                     \
    const void *data, MPI_Count count, MPI_Datatype type, int dest, int tag,   \
        void *buffer, MPI_Count count2, MPI_Datatype type2, int source,        \
        int tag2, MPI_Comm comm
#define REPLACE_ARGUMENTS                                                      \
    void *buffer, MPI_Count count, MPI_Datatype type, int dest, int tag,       \
        int source, int tag2, MPI_Comm comm
#define OUT(memory)                                                            \
    &(psc_mpi_transfer_t){memory, count, type, dest, tag, comm, .flags = 0}
#define IN(n_items, item)                                                      \
    &(psc_mpi_transfer_t){buffer, n_items,         item, source, tag2,         \
                          comm,   .receives = true}

static int wait_for(int code, MPI_Request request, MPI_Status *status)
{
    return code == MPI_SUCCESS ? psc_mpi_request_finish(request, status) : code;
}

int MPI_Isendrecv_c(EXCHANGE_ARGUMENTS, MPI_Request *request)
{
    return exchange(OUT(data), IN(count2, type2), request);
}

int MPI_Sendrecv_c(EXCHANGE_ARGUMENTS, MPI_Status *status)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int code = exchange(OUT(data), IN(count2, type2), &request);

    return wait_for(code, request, status);
}

int MPI_Isendrecv_replace_c(REPLACE_ARGUMENTS, MPI_Request *request)
{
    return exchange_in_place(OUT(buffer), IN(count, type), request);
}

int MPI_Sendrecv_replace_c(REPLACE_ARGUMENTS, MPI_Status *status)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int code = exchange_in_place(OUT(buffer), IN(count, type), &request);

    return wait_for(code, request, status);
}
