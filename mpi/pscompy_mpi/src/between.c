/* Collectives between the two groups of an inter-communicator.
 *
 * Each is one exchange of parts among the ranks of both groups, in which a rank
 * sends what each rank of the other group needs, and nothing to its own group.
 * Data that several ranks need is sent to each of them. The operands of a
 * reduction are combined where they arrive. So nothing goes in two steps, of
 * which the second would begin only when the program waits. */
#include "sides.h"

#include <stdlib.h>

typedef const psc_mpi_collective_t call_t;
typedef const psc_mpi_comm_t comm_t;
typedef psc_mpi_coll_t coll_t;

/* ---- what one side has ---- */

/* Items for the rank of the other group that is the root. */
static int fill_one(psc_mpi_side_t *side, const void *buffer, MPI_Count count,
                    MPI_Datatype type)
{
    return buffer == MPI_IN_PLACE
               ? MPI_ERR_BUFFER
               : psc_mpi_side_whole(side, buffer, count, type);
}

/* The same items for each rank of the other group. */
static int fill_copies(psc_mpi_side_t *side, comm_t *comm, const void *buffer,
                       MPI_Count count, MPI_Datatype type)
{
    return buffer == MPI_IN_PLACE
               ? MPI_ERR_BUFFER
               : psc_mpi_side_copies(side, buffer, count, type, comm->n_peers);
}

/* So many items for each of them, or parts of different lengths. */
static int fill_parts(psc_mpi_side_t *side, comm_t *comm,
                      const psc_mpi_parts_t *parts, MPI_Count count)
{
    if (parts->buffer == MPI_IN_PLACE)
        return MPI_ERR_BUFFER;
    return parts->counts
               ? psc_mpi_side_parts(side, parts, comm->n_peers)
               : psc_mpi_side_whole(side, parts->buffer, count * comm->n_peers,
                                    parts->type);
}

static int fill_send_parts(coll_t *coll, call_t *call, comm_t *comm)
{
    const psc_mpi_parts_t parts = psc_mpi_send_parts(call);

    return fill_parts(&coll->out, comm, &parts, call->send_count);
}

static int fill_recv_parts(coll_t *coll, call_t *call, comm_t *comm)
{
    const psc_mpi_parts_t parts = psc_mpi_recv_parts(call);

    return fill_parts(&coll->in, comm, &parts, call->recv_count);
}

/* ---- collectives with a root ---- */

static bool is_root(call_t *call)
{
    return call->root == MPI_ROOT;
}

static int fill_bcast(coll_t *coll, call_t *call, comm_t *comm)
{
    return is_root(call)
               ? fill_copies(&coll->out, comm, call->recv, call->count,
                             call->type)
               : fill_one(&coll->in, call->recv, call->count, call->type);
}

static int fill_gather(coll_t *coll, call_t *call, comm_t *comm)
{
    return is_root(call) ? fill_recv_parts(coll, call, comm)
                         : fill_one(&coll->out, call->send, call->send_count,
                                    call->send_type);
}

static int fill_scatter(coll_t *coll, call_t *call, comm_t *comm)
{
    return is_root(call) ? fill_send_parts(coll, call, comm)
                         : fill_one(&coll->in, call->recv, call->recv_count,
                                    call->recv_type);
}

/* ---- collectives of all ---- */

static int fill_allgather(coll_t *coll, call_t *call, comm_t *comm)
{
    int code = fill_copies(&coll->out, comm, call->send, call->send_count,
                           call->send_type);

    return code == MPI_SUCCESS ? fill_recv_parts(coll, call, comm) : code;
}

static int fill_alltoall(coll_t *coll, call_t *call, comm_t *comm)
{
    int code = fill_send_parts(coll, call, comm);

    return code == MPI_SUCCESS ? fill_recv_parts(coll, call, comm) : code;
}

/* ---- reductions ---- */

/* Make room for the operands of all ranks of the other group, of which this
 * rank needs `count` elements from `begin` on. */
static int fill_operands(coll_t *coll, call_t *call, comm_t *comm,
                         MPI_Count begin, MPI_Count count)
{
    psc_mpi_fold_t *fold = &coll->fold;
    int code =
        psc_mpi_op_fill(&fold->args, &coll->combine, call->op, call->type);

    fold->n_operands = comm->n_peers;
    fold->begin = (uint64_t)begin * fold->args.size;
    fold->args.count = (uint64_t)count;
    if (code == MPI_SUCCESS)
        code = psc_mpi_data_of(&fold->result, call->recv, count, call->type);
    if (code == MPI_SUCCESS && coll->out.spaced)
        psc_mpi_data_space(&fold->result);
    coll->in.nbytes = (MPI_Count)fold->nbytes * comm->n_peers;
    return code == MPI_SUCCESS ? psc_mpi_side_take_room(&coll->in) : code;
}

/* Say how long an operand is. */
static int fill_length(coll_t *coll, call_t *call, MPI_Count count)
{
    const psc_mpi_type_t *type = psc_mpi_type_find(call->type);
    int code = psc_mpi_side_operand(&coll->out, type);

    if (count < 0)
        return MPI_ERR_COUNT;
    if (code != MPI_SUCCESS)
        return code;
    coll->fold.args.size = (uint64_t)type->extent;
    coll->fold.nbytes = (uint64_t)(count * type->extent);
    return MPI_SUCCESS;
}

static int fill_reduce(coll_t *coll, call_t *call, comm_t *comm)
{
    int code = fill_length(coll, call, call->count);

    if (code != MPI_SUCCESS)
        return code;
    return is_root(call)
               ? fill_operands(coll, call, comm, 0, call->count)
               : fill_one(&coll->out, call->send, call->count, call->type);
}

/* The part of this rank in the results of its group: `count` elements from
 * `begin` on; `total`: of all parts. */
typedef struct share {
    MPI_Count begin, count, total;
} share_t;

static int fill_share(coll_t *coll, call_t *call, comm_t *comm, share_t share)
{
    int code = fill_length(coll, call, share.total);

    if (code == MPI_SUCCESS)
        code =
            fill_copies(&coll->out, comm, call->send, share.total, call->type);
    if (code != MPI_SUCCESS)
        return code;
    return fill_operands(coll, call, comm, share.begin, share.count);
}

static int fill_allreduce(coll_t *coll, call_t *call, comm_t *comm)
{
    return fill_share(coll, call, comm, (share_t){0, call->count, call->count});
}

static int fill_reduce_scatter_block(coll_t *coll, call_t *call, comm_t *comm)
{
    return fill_share(coll, call, comm,
                      (share_t){call->count * comm->rank, call->count,
                                call->count * comm->size});
}

static int fill_reduce_scatter(coll_t *coll, call_t *call, comm_t *comm)
{
    share_t share = {0, 0, 0};

    for (int rank = 0; rank < comm->size; rank++) {
        MPI_Count count = psc_mpi_count_at(call->recv_counts, call->wide, rank);

        if (count < 0)
            return MPI_ERR_COUNT;
        if (rank == comm->rank)
            share.begin = share.total;
        if (rank == comm->rank)
            share.count = count;
        share.total += count;
    }
    return fill_share(coll, call, comm, share);
}

/* Each operand is combined with the result of those behind it. */
int psc_mpi_fold(const psc_mpi_fold_t *fold, char *operands)
{
    psc_status_t status = PSC_OK;
    char *folded;

    if (fold->n_operands == 0 || fold->args.count == 0)
        return MPI_SUCCESS;
    operands += fold->begin;
    folded = operands + (uint64_t)(fold->n_operands - 1) * fold->nbytes;
    for (int i = fold->n_operands - 1; i-- > 0 && status == PSC_OK;)
        status = psc_mpi.host.api->coll_combine(
            &fold->args, operands + (uint64_t)i * fold->nbytes, folded);
    if (status != PSC_OK)
        return MPI_ERR_OP;
    psc_mpi_data_unpack(&fold->result, folded, fold->result.nbytes);
    return MPI_SUCCESS;
}

/* ---- which is which ---- */

typedef int fill_t(coll_t *coll, call_t *call, comm_t *comm);

static const struct between {
    fill_t *fill; /* NULL: there is none between two groups */
    bool has_root;
} betweens[PSC_MPI_COLLECTIVE_COUNT] = {
    [PSC_MPI_BCAST] = {fill_bcast, true},
    [PSC_MPI_GATHER] = {fill_gather, true},
    [PSC_MPI_GATHERV] = {fill_gather, true},
    [PSC_MPI_SCATTER] = {fill_scatter, true},
    [PSC_MPI_SCATTERV] = {fill_scatter, true},
    [PSC_MPI_REDUCE] = {fill_reduce, true},
    [PSC_MPI_ALLGATHER] = {fill_allgather, false},
    [PSC_MPI_ALLGATHERV] = {fill_allgather, false},
    [PSC_MPI_ALLTOALL] = {fill_alltoall, false},
    [PSC_MPI_ALLTOALLV] = {fill_alltoall, false},
    [PSC_MPI_ALLTOALLW] = {fill_alltoall, false},
    [PSC_MPI_ALLREDUCE] = {fill_allreduce, false},
    [PSC_MPI_REDUCE_SCATTER_BLOCK] = {fill_reduce_scatter_block, false},
    [PSC_MPI_REDUCE_SCATTER] = {fill_reduce_scatter, false},
};

/* Returns how many bytes of the side are of one peer; `root`: of which alone
 * there are any, or -1. */
static uint64_t bytes_of(const psc_mpi_side_t *side, comm_t *comm, int peer,
                         int root)
{
    if (side->counts)
        return side->counts[peer];
    if (root < 0)
        return (uint64_t)(side->nbytes / comm->n_peers);
    return peer == root ? (uint64_t)side->nbytes : 0;
}

/* Say how many bytes are of each rank of both groups. */
static int count_bytes(psc_mpi_side_t *side, comm_t *comm, int root)
{
    const psc_mpi_both_t *both = comm->both;
    uint64_t *counts = calloc((size_t)both->size, sizeof *counts);

    if (!counts)
        return MPI_ERR_NO_MEM;
    for (int peer = 0; peer < comm->n_peers; peer++)
        counts[both->first_peer + peer] = bytes_of(side, comm, peer, root);
    free(side->counts);
    side->counts = counts;
    return MPI_SUCCESS;
}

static int fill_exchange(coll_t *coll, call_t *call, comm_t *comm)
{
    const struct between *it = betweens + call->number;
    int code = MPI_SUCCESS, root = it->has_root ? call->root : -1;

    if (call->root != MPI_PROC_NULL || !it->has_root)
        code = it->fill(coll, call, comm);
    if (code == MPI_SUCCESS)
        code = count_bytes(&coll->out, comm, root);
    if (code == MPI_SUCCESS)
        code = count_bytes(&coll->in, comm, root);
    coll->args = (psc_coll_args_t){.coll = PSC_COLL_ALLTOALL,
                                   .send = coll->out.memory,
                                   .recv = coll->in.memory,
                                   .size = 1,
                                   .counts = coll->out.counts,
                                   .recv_counts = coll->in.counts};
    return code;
}

static bool root_exists(call_t *call, comm_t *comm)
{
    return call->root == MPI_ROOT || call->root == MPI_PROC_NULL ||
           (call->root >= 0 && call->root < comm->n_peers);
}

int psc_mpi_between_fill(coll_t *coll, call_t *call, comm_t *comm)
{
    const struct between *it = betweens + call->number;

    if (call->number == PSC_MPI_BARRIER) {
        coll->args = (psc_coll_args_t){.coll = PSC_COLL_BARRIER, .size = 1};
        return MPI_SUCCESS;
    }
    if (!it->fill)
        return MPI_ERR_COMM;
    if (it->has_root && !root_exists(call, comm))
        return MPI_ERR_ROOT;
    return fill_exchange(coll, call, comm);
}
