/* Communicators: their ranks, contexts and connections. Python decides what a
 * communicator consists of; sending and receiving need only this. */
#include "library.h"

#include <stdlib.h>
#include <string.h>

#define PREDEFINED 2 /* MPI_COMM_WORLD, MPI_COMM_SELF */

static psc_mpi_comm_t predefined[PREDEFINED];
static atomic_uint n_predefined;
static psc_mpi_table_t comms =
    PSC_MPI_TABLE(PSC_MPI_COMM, psc_mpi_comm_t, PREDEFINED);

psc_mpi_comm_t *psc_mpi_comm_find(MPI_Comm comm)
{
    uint32_t index = (uint32_t)comm - (uint32_t)MPI_COMM_WORLD;

    if (!psc_mpi_running())
        return NULL;
    return index < PREDEFINED ? predefined + index
                              : psc_mpi_object_find(&comms, comm);
}

/* ---- creating ---- */

/* Returns the rank in the communicator of each rank of the job, or NULL if no
 * memory is left. */
static int32_t *comm_invert(const psc_mpi_comm_args_t *args)
{
    size_t n = (size_t)psc_mpi.host.size;
    int32_t *ranks = malloc(n * sizeof *ranks);

    for (size_t i = 0; ranks && i < n; i++)
        ranks[i] = -1;
    for (int i = 0; ranks && i < args->size; i++)
        ranks[args->members[i]] = i;
    return ranks;
}

static bool comm_map(psc_mpi_comm_t *comm, const psc_mpi_comm_args_t *args)
{
    size_t nbytes = (size_t)args->size * sizeof *comm->members;

    if (!args->members)
        return true;
    comm->members = malloc(nbytes);
    comm->ranks = comm_invert(args);
    if (!comm->members || !comm->ranks)
        return false;
    memcpy(comm->members, args->members, nbytes);
    return true;
}

static psc_mpi_comm_t *comm_place(void)
{
    unsigned n = atomic_load(&n_predefined);
    psc_mpi_comm_t *comm;

    if (n < PREDEFINED) {
        atomic_store(&n_predefined, n + 1);
        predefined[n].handle = MPI_COMM_WORLD + (int)n;
        return predefined + n;
    }
    comm = psc_mpi_object_create(&comms);
    if (comm)
        comm->handle = psc_mpi_object_handle(comm);
    return comm;
}

MPI_Comm psc_mpi_comm_create(const psc_mpi_comm_args_t *args)
{
    psc_mpi_comm_t *comm = comm_place();

    if (!comm)
        return MPI_COMM_NULL;
    atomic_store(&comm->holders, 1);
    comm->context = args->context;
    comm->rank = args->rank;
    comm->size = args->size;
    atomic_store(&comm->errhandler, MPI_ERRORS_ARE_FATAL);
    if (comm_map(comm, args))
        return comm->handle;
    psc_mpi_comm_destroy(comm->handle);
    return MPI_COMM_NULL;
}

/* ---- ending ---- */

void psc_mpi_comm_hold(psc_mpi_comm_t *comm)
{
    atomic_fetch_add(&comm->holders, 1);
}

static void comm_end(psc_mpi_comm_t *comm)
{
    uint32_t context = comm->context;

    psc_mpi_space_free(&comm->space);
    for (int i = 0; i < 2; i++) {
        if (comm->groups[i])
            psc_mpi.host.api->group_destroy(comm->groups[i]);
    }
    free(comm->members);
    free(comm->ranks);
    psc_mpi_object_free(&comms, comm);
    if (psc_mpi_running())
        psc_mpi.host.comm_ended(context);
}

void psc_mpi_comm_let_go(psc_mpi_comm_t *comm)
{
    if (atomic_fetch_sub(&comm->holders, 1) == 1)
        comm_end(comm);
}

void psc_mpi_comm_destroy(MPI_Comm handle)
{
    psc_mpi_comm_t *comm = psc_mpi_object_find(&comms, handle);

    if (!comm)
        return;
    psc_mpi_object_hide(comm);
    psc_mpi_comm_let_go(comm);
}

/* ---- connections ---- */

/* Returns a connection that has not been used yet. */
static psc_conn_t *conn_first(int member)
{
    psc_conn_t *conn = psc_mpi.host.connection(member);

    if (conn)
        atomic_store_explicit(psc_mpi.conns + member, conn,
                              memory_order_release);
    return conn;
}

psc_conn_t *psc_mpi_comm_conn(const psc_mpi_comm_t *comm, int rank)
{
    const psc_api_t *api = psc_mpi.host.api;
    int member = psc_mpi_comm_member(comm, rank);
    psc_conn_t *conn =
        atomic_load_explicit(psc_mpi.conns + member, memory_order_acquire);

    if (!conn)
        conn = conn_first(member);
    /* an error of opening is that of the operation that follows */
    if (conn && api->conn_state(conn) == PSC_CONN_LAZY)
        api->conn_open(conn, 0);
    return conn;
}

/* ---- functions ---- */

int MPI_Comm_rank(MPI_Comm handle, int *rank)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);

    if (!comm)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    *rank = comm->rank;
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm handle, int *size)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);

    if (!comm)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    *size = comm->size;
    return MPI_SUCCESS;
}

int MPI_Comm_remote_size(MPI_Comm handle, int *size)
{
    (void)size;
    return psc_mpi_raise(psc_mpi_comm_find(handle), MPI_ERR_COMM);
}

int MPI_Comm_test_inter(MPI_Comm handle, int *flag)
{
    if (!psc_mpi_comm_find(handle))
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    *flag = 0;
    return MPI_SUCCESS;
}
