/* MPI_Bsend: sends of copies, which count against a buffer that the program has
 * attached to the process or to a communicator. The copies stand in memory of
 * their own, and are freed when their messages were sent. */
#include "library.h"

#include <pthread.h>
#include <stdlib.h>

struct psc_mpi_copy {
    psc_mpi_copy_t *next;
    psc_request_t *core;
    MPI_Count nbytes; /* counted in the space's `used` */
    unsigned waiters; /* threads that use `core` */
    char bytes[];
};

static psc_mpi_space_t process_space;
/* has the copies of communicators that have ended */
static psc_mpi_space_t left_space;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void copy_free(psc_mpi_copy_t *copy)
{
    if (copy->core)
        psc_mpi.host.api->request_free(copy->core);
    free(copy);
}

/* Free the copies whose messages were sent. */
static void space_sweep(psc_mpi_space_t *space)
{
    psc_mpi_copy_t **at = &space->copies;

    while (*at) {
        psc_mpi_copy_t *copy = *at;

        if (copy->waiters ||
            psc_request_state(copy->core) != PSC_REQUEST_DONE) {
            at = &copy->next;
            continue;
        }
        *at = copy->next;
        space->used -= copy->nbytes;
        copy_free(copy);
    }
}

void psc_mpi_space_free(psc_mpi_space_t *space)
{
    psc_mpi_copy_t **end = &left_space.copies;

    pthread_mutex_lock(&lock);
    space_sweep(space);
    space_sweep(&left_space);
    while (*end)
        end = &(*end)->next;
    *end = space->copies;
    left_space.used += space->used;
    *space = (psc_mpi_space_t){0};
    pthread_mutex_unlock(&lock);
}

/* Count a message against a buffer. */
static bool space_take(psc_mpi_space_t *space, MPI_Count nbytes)
{
    bool fits;

    pthread_mutex_lock(&lock);
    space_sweep(space);
    space_sweep(&left_space);
    fits = space->base == MPI_BUFFER_AUTOMATIC ||
           (space->base && nbytes <= space->size - space->used);
    if (fits)
        space->used += nbytes;
    pthread_mutex_unlock(&lock);
    return fits;
}

/* Count a message no longer. */
static void space_give_back(psc_mpi_space_t *space, MPI_Count nbytes)
{
    pthread_mutex_lock(&lock);
    space->used -= nbytes;
    pthread_mutex_unlock(&lock);
}

/* Keep the copy of a message that is in flight, or free it. */
static void space_keep(psc_mpi_space_t *space, psc_mpi_copy_t *copy)
{
    pthread_mutex_lock(&lock);
    if (copy->core) {
        copy->next = space->copies;
        space->copies = copy;
    } else {
        space->used -= copy->nbytes;
        copy_free(copy);
    }
    pthread_mutex_unlock(&lock);
}

static int copy_send(psc_mpi_comm_t *comm, const psc_mpi_transfer_t *transfer,
                     psc_mpi_copy_t *copy, MPI_Count nbytes)
{
    psc_mpi_data_t packed;

    psc_mpi_data_of(&packed, copy->bytes, nbytes, MPI_BYTE);
    return psc_mpi_send_start(comm, transfer, &packed, &copy->core);
}

int psc_mpi_send_buffered(psc_mpi_comm_t *comm,
                          const psc_mpi_transfer_t *transfer,
                          psc_mpi_data_t *data)
{
    psc_mpi_space_t *space = comm->space.base ? &comm->space : &process_space;
    MPI_Count nbytes = data->nbytes + MPI_BSEND_OVERHEAD;
    psc_mpi_copy_t *copy;
    int code;

    if (transfer->peer == MPI_PROC_NULL)
        return PSC_MPI_NO_PEER;
    if (!space_take(space, nbytes))
        return psc_mpi_error_add(MPI_ERR_BUFFER,
                                 "the attached buffer has no room left");
    copy = malloc(sizeof *copy + (size_t)data->nbytes);
    if (!copy) {
        space_give_back(space, nbytes);
        return MPI_ERR_NO_MEM;
    }
    *copy = (psc_mpi_copy_t){.nbytes = nbytes};
    psc_mpi_data_pack(data, copy->bytes);
    code = copy_send(comm, transfer, copy, data->nbytes);
    space_keep(space, copy);
    return code;
}

/* ---- functions ---- */

static int attach(psc_mpi_space_t *space, void *buffer, MPI_Count size)
{
    if (space->base)
        return psc_mpi_raise(NULL, MPI_ERR_BUFFER);
    space->base = buffer ? buffer : space;
    space->size = buffer == MPI_BUFFER_AUTOMATIC ? 0 : size;
    return MPI_SUCCESS;
}

/* Returns one of the copies that are in flight, which stays until it is given
 * to space_let_go, or NULL. */
static psc_mpi_copy_t *space_hold(psc_mpi_space_t *space)
{
    psc_mpi_copy_t *copy;

    pthread_mutex_lock(&lock);
    space_sweep(space);
    copy = space->copies;
    if (copy)
        copy->waiters++;
    pthread_mutex_unlock(&lock);
    return copy;
}

static void space_let_go(psc_mpi_copy_t *copy)
{
    pthread_mutex_lock(&lock);
    copy->waiters--;
    pthread_mutex_unlock(&lock);
}

static int flush(psc_mpi_space_t *space)
{
    psc_mpi_copy_t *copy;
    int code = MPI_SUCCESS;

    while (code == MPI_SUCCESS && (copy = space_hold(space))) {
        code = psc_mpi_wait(&copy->core, 1, PSC_WAIT_ALL);
        space_let_go(copy);
    }
    return code;
}

static int detach(psc_mpi_space_t *space, void *base, MPI_Count *size)
{
    int code = space->base ? flush(space) : MPI_ERR_BUFFER;

    if (code != MPI_SUCCESS)
        return psc_mpi_raise(NULL, code);
    *(void **)base = space->base == space ? NULL : space->base;
    *size = space->size;
    *space = (psc_mpi_space_t){0};
    return MPI_SUCCESS;
}

/* A request that is done: the copies do not need it. */
static int iflush(psc_mpi_space_t *space, MPI_Request *handle)
{
    psc_mpi_comm_t *self = psc_mpi_comm_find(MPI_COMM_SELF);
    psc_mpi_request_t *request = NULL;
    int code = flush(space);

    if (code == MPI_SUCCESS)
        request = psc_mpi_request_create(self);
    if (!request)
        return psc_mpi_raise(self, code ? code : MPI_ERR_NO_MEM);
    *handle = psc_mpi_object_handle(request);
    return MPI_SUCCESS;
}

int MPI_Buffer_attach_c(void *buffer, MPI_Count size)
{
    return attach(&process_space, buffer, size);
}

int MPI_Buffer_detach_c(void *base, MPI_Count *size)
{
    return detach(&process_space, base, size);
}

int MPI_Buffer_flush(void)
{
    int code = flush(&process_space);

    return code == MPI_SUCCESS ? code : psc_mpi_raise(NULL, code);
}

int MPI_Buffer_iflush(MPI_Request *request)
{
    return iflush(&process_space, request);
}

int MPI_Comm_attach_buffer_c(MPI_Comm handle, void *buffer, MPI_Count size)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);

    return comm ? attach(&comm->space, buffer, size)
                : psc_mpi_raise(NULL, MPI_ERR_COMM);
}

int MPI_Comm_detach_buffer_c(MPI_Comm handle, void *base, MPI_Count *size)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);

    return comm ? detach(&comm->space, base, size)
                : psc_mpi_raise(NULL, MPI_ERR_COMM);
}

int MPI_Comm_flush_buffer(MPI_Comm handle)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);
    int code = comm ? flush(&comm->space) : MPI_ERR_COMM;

    return code == MPI_SUCCESS ? code : psc_mpi_raise(comm, code);
}

int MPI_Comm_iflush_buffer(MPI_Comm handle, MPI_Request *request)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);

    return comm ? iflush(&comm->space, request)
                : psc_mpi_raise(NULL, MPI_ERR_COMM);
}
