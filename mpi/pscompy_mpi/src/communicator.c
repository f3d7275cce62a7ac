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

/* Returns which peer each rank of the job is; NULL: no memory is left. */
static int32_t *comm_invert(const int32_t *members, int n_members)
{
    size_t n = (size_t)psc_mpi.host.size;
    int32_t *ranks = malloc(n * sizeof *ranks);

    for (size_t i = 0; ranks && i < n; i++)
        ranks[i] = -1;
    for (int i = 0; ranks && i < n_members; i++)
        ranks[members[i]] = i;
    return ranks;
}

static bool comm_map(psc_mpi_comm_t *comm, const int32_t *members)
{
    size_t nbytes = (size_t)comm->n_peers * sizeof *members;

    comm->members = malloc(nbytes);
    comm->ranks = comm_invert(members, comm->n_peers);
    if (!comm->members || !comm->ranks)
        return false;
    memcpy(comm->members, members, nbytes);
    return true;
}

/* An inter-communicator. */
static bool comm_join(psc_mpi_comm_t *comm, const psc_mpi_comm_args_t *args)
{
    size_t nbytes = (size_t)args->size * sizeof *args->members;
    psc_mpi_both_t *both = comm->both = malloc(sizeof *both + nbytes);
    bool is_first = args->rank < args->n_first;

    if (!both)
        return false;
    both->rank = args->rank;
    both->size = args->size;
    both->first_peer = is_first ? args->n_first : 0;
    memcpy(both->members, args->members, nbytes);
    comm->rank = is_first ? args->rank : args->rank - args->n_first;
    comm->size = is_first ? args->n_first : args->size - args->n_first;
    comm->n_peers = args->size - comm->size;
    return comm_map(comm, both->members + both->first_peer);
}

static bool comm_fill(psc_mpi_comm_t *comm, const psc_mpi_comm_args_t *args)
{
    if (args->n_first > 0)
        return comm_join(comm, args);
    comm->rank = args->rank;
    comm->size = comm->n_peers = args->size;
    return !args->members || comm_map(comm, args->members);
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
    atomic_store(&comm->errhandler, MPI_ERRORS_ARE_FATAL);
    if (comm_fill(comm, args))
        return comm->handle;
    psc_mpi_comm_destroy(comm->handle);
    return MPI_COMM_NULL;
}

void psc_mpi_comm_move(MPI_Comm handle, uint32_t context)
{
    psc_mpi_comm_t *comm = psc_mpi_object_find(&comms, handle);

    if (comm)
        comm->context = context;
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
    psc_mpi_comm_set_handler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < 2; i++) {
        if (comm->groups[i])
            psc_mpi.host.api->group_destroy(comm->groups[i]);
    }
    free(comm->members);
    free(comm->ranks);
    free(comm->both);
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

psc_conn_t *psc_mpi_conn(int member)
{
    const psc_api_t *api = psc_mpi.host.api;
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
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);

    if (!comm || !comm->both)
        return psc_mpi_raise(comm, MPI_ERR_COMM);
    *size = comm->n_peers;
    return MPI_SUCCESS;
}

int MPI_Comm_test_inter(MPI_Comm handle, int *flag)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);

    if (!comm)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    *flag = comm->both != NULL;
    return MPI_SUCCESS;
}
