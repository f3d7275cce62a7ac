/* The collective of the core that does a call of MPI's, and with which
 * arguments.
 *
 * A reduction of elements with gaps goes by copies that have the gaps, too.
 * Parts of different lengths go by pairs of ranks, because only the root knows
 * all lengths. */
#include "sides.h"

#include <stdlib.h>

typedef const psc_mpi_collective_t call_t;
typedef psc_mpi_coll_t coll_t;

static bool is_root(call_t *call, const psc_mpi_comm_t *comm)
{
    return call->root == comm->rank;
}

static int fill_barrier(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    (void)call;
    (void)comm;
    coll->args.coll = PSC_COLL_BARRIER;
    coll->args.size = 1;
    return MPI_SUCCESS;
}

static int fill_bcast(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    int code =
        psc_mpi_side_whole(&coll->in, call->recv, call->count, call->type);

    coll->args.coll = PSC_COLL_BCAST;
    coll->args.size = 1;
    coll->args.count = (uint64_t)coll->in.nbytes;
    coll->packs_in = is_root(call, comm);
    return code;
}

/* ---- reductions ---- */

static int fill_operand(coll_t *coll, call_t *call, MPI_Count count)
{
    const psc_mpi_type_t *found = psc_mpi_type_find(call->type);
    int code = psc_mpi_side_operand(&coll->out, found);

    if (count < 0)
        return MPI_ERR_COUNT;
    if (code != MPI_SUCCESS)
        return code;
    coll->args.size = (uint64_t)found->extent;
    coll->args.count = (uint64_t)count;
    coll->out.memory = (char *)call->send;
    coll->in.memory = call->recv;
    if (call->send == MPI_IN_PLACE)
        coll->out.memory = call->recv;
    return psc_mpi_op_fill(&coll->args, &coll->combine, call->op, call->type);
}

/* The operand and the result of elements with gaps, as copies. */
static int fill_spaced(coll_t *coll, call_t *call, MPI_Count n_out,
                       MPI_Count n_in)
{
    int code =
        psc_mpi_side_whole(&coll->out, coll->out.memory, n_out, call->type);

    coll->in.spaced = true;
    return code == MPI_SUCCESS && coll->in.memory
               ? psc_mpi_side_whole(&coll->in, coll->in.memory, n_in,
                                    call->type)
               : code;
}

static bool has_result(call_t *call, const psc_mpi_comm_t *comm)
{
    if (call->number == PSC_MPI_EXSCAN)
        return comm->rank > 0;
    return call->number != PSC_MPI_REDUCE || is_root(call, comm);
}

static int fill_reduce(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    static const psc_coll_t colls[] = {
        [PSC_MPI_REDUCE] = PSC_COLL_REDUCE,
        [PSC_MPI_ALLREDUCE] = PSC_COLL_ALLREDUCE,
        [PSC_MPI_SCAN] = PSC_COLL_SCAN,
        [PSC_MPI_EXSCAN] = PSC_COLL_EXSCAN,
    };
    int code = fill_operand(coll, call, call->count);

    coll->args.coll = colls[call->number];
    if (!has_result(call, comm))
        coll->in.memory = NULL;
    return code == MPI_SUCCESS && coll->out.spaced
               ? fill_spaced(coll, call, call->count, call->count)
               : code;
}

/* In place the operand is longer than the result, so it is read from a copy. */
static int copy_operand(coll_t *coll, call_t *call, uint64_t n, uint64_t own)
{
    if (coll->out.spaced)
        return fill_spaced(coll, call, (MPI_Count)n, (MPI_Count)own);
    if (call->send != MPI_IN_PLACE)
        return MPI_SUCCESS;
    coll->out.nbytes = (MPI_Count)(n * coll->args.size);
    coll->out.whole.iov[0].base = call->recv;
    coll->out.whole.nbytes = coll->out.nbytes;
    coll->out.whole.n_iov = coll->out.n_pieces = 1;
    return psc_mpi_side_take_room(&coll->out);
}

static int fill_reduce_scatter_block(coll_t *coll, call_t *call,
                                     psc_mpi_comm_t *comm)
{
    int code = fill_operand(coll, call, call->count);

    coll->args.coll = PSC_COLL_REDUCE_SCATTER;
    if (code != MPI_SUCCESS)
        return code;
    return copy_operand(coll, call, coll->args.count * (uint64_t)comm->size,
                        coll->args.count);
}

static int fill_reduce_scatter(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    int code = fill_operand(coll, call, 0);
    uint64_t n = 0;

    coll->args.coll = PSC_COLL_REDUCE_SCATTER;
    coll->in.counts = calloc((size_t)comm->size, sizeof(uint64_t));
    if (code != MPI_SUCCESS || !coll->in.counts)
        return code ? code : MPI_ERR_NO_MEM;
    for (int rank = 0; rank < comm->size; rank++) {
        MPI_Count count = psc_mpi_count_at(call->recv_counts, call->wide, rank);

        if (count < 0)
            return MPI_ERR_COUNT;
        n += coll->in.counts[rank] = (uint64_t)count;
    }
    coll->args.counts = coll->in.counts;
    return copy_operand(coll, call, n, coll->in.counts[comm->rank]);
}

/* ---- equal parts ---- */

static void set_moving(coll_t *coll, psc_coll_t which, MPI_Count nbytes)
{
    coll->args.coll = which;
    coll->args.size = 1;
    coll->args.count = (uint64_t)nbytes;
}

static int fill_send(coll_t *coll, call_t *call, MPI_Count parts)
{
    return psc_mpi_side_whole(&coll->out, call->send, call->send_count * parts,
                              call->send_type);
}

static int fill_recv(coll_t *coll, call_t *call, MPI_Count parts)
{
    return psc_mpi_side_whole(&coll->in, call->recv, call->recv_count * parts,
                              call->recv_type);
}

/* The part of this rank stands in the result already. */
static void use_own_part(coll_t *coll, int rank, MPI_Count part)
{
    coll->packs_in = true;
    coll->out.memory = coll->in.memory ? coll->in.memory + rank * part : NULL;
}

static int fill_gather(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    bool all = call->number == PSC_MPI_ALLGATHER;
    int code = MPI_SUCCESS;

    if (all || is_root(call, comm))
        code = fill_recv(coll, call, comm->size);
    if (code == MPI_SUCCESS && call->send != MPI_IN_PLACE)
        code = fill_send(coll, call, 1);
    set_moving(coll, all ? PSC_COLL_ALLGATHER : PSC_COLL_GATHER,
               all || is_root(call, comm) ? coll->in.nbytes / comm->size
                                          : coll->out.nbytes);
    if (code == MPI_SUCCESS && call->send == MPI_IN_PLACE)
        use_own_part(coll, comm->rank, (MPI_Count)coll->args.count);
    return code;
}

static int fill_scatter(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    int code = MPI_SUCCESS;

    if (is_root(call, comm))
        code = fill_send(coll, call, comm->size);
    if (code == MPI_SUCCESS && call->recv != MPI_IN_PLACE)
        code = fill_recv(coll, call, 1);
    set_moving(coll, PSC_COLL_SCATTER,
               is_root(call, comm) ? coll->out.nbytes / comm->size
                                   : coll->in.nbytes);
    if (code == MPI_SUCCESS && call->recv == MPI_IN_PLACE && coll->out.memory)
        coll->in.memory =
            coll->out.memory + comm->rank * (MPI_Count)coll->args.count;
    return code;
}

static int fill_alltoall(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    int code = fill_recv(coll, call, comm->size);

    if (code == MPI_SUCCESS && call->send != MPI_IN_PLACE)
        code = fill_send(coll, call, comm->size);
    set_moving(coll, PSC_COLL_ALLTOALL, coll->in.nbytes / comm->size);
    if (call->send == MPI_IN_PLACE) {
        coll->packs_in = true;
        coll->out.memory = coll->in.memory;
    }
    return code;
}

/* ---- parts of different lengths ---- */

/* The counts of a rank that knows only its own. */
static int set_own_count(coll_t *coll, psc_mpi_side_t *side,
                         const psc_mpi_comm_t *comm)
{
    side->counts = calloc((size_t)comm->size, sizeof *side->counts);
    if (!side->counts)
        return MPI_ERR_NO_MEM;
    side->counts[comm->rank] = (uint64_t)side->nbytes;
    coll->args.counts = side->counts;
    return MPI_SUCCESS;
}

static MPI_Count part_begin(const psc_mpi_side_t *side, int rank)
{
    MPI_Count begin = 0;

    for (int i = 0; i < rank; i++)
        begin += (MPI_Count)side->counts[i];
    return begin;
}

static int fill_gatherv(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    bool all = call->number == PSC_MPI_ALLGATHERV;
    const psc_mpi_parts_t parts = psc_mpi_recv_parts(call);
    int code = MPI_SUCCESS;

    set_moving(coll, all ? PSC_COLL_ALLGATHER : PSC_COLL_GATHER, 0);
    coll->args.algorithm = "pairs";
    if (call->send != MPI_IN_PLACE)
        code = fill_send(coll, call, 1);
    if (code != MPI_SUCCESS)
        return code;
    if (!all && !is_root(call, comm))
        return set_own_count(coll, &coll->out, comm);
    code = psc_mpi_side_parts(&coll->in, &parts, comm->size);
    coll->args.counts = coll->in.counts;
    if (code == MPI_SUCCESS && call->send == MPI_IN_PLACE)
        use_own_part(coll, 1, part_begin(&coll->in, comm->rank));
    return code;
}

static int fill_scatterv(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    const psc_mpi_parts_t parts = psc_mpi_send_parts(call);
    int code = MPI_SUCCESS;

    set_moving(coll, PSC_COLL_SCATTER, 0);
    coll->args.algorithm = "pairs";
    if (call->recv != MPI_IN_PLACE)
        code = fill_recv(coll, call, 1);
    if (code != MPI_SUCCESS)
        return code;
    if (!is_root(call, comm))
        return set_own_count(coll, &coll->in, comm);
    code = psc_mpi_side_parts(&coll->out, &parts, comm->size);
    coll->args.counts = coll->out.counts;
    if (code == MPI_SUCCESS && call->recv == MPI_IN_PLACE)
        coll->in.memory = coll->out.memory + part_begin(&coll->out, comm->rank);
    return code;
}

static int fill_alltoallv(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    const psc_mpi_parts_t out = psc_mpi_send_parts(call),
                          in = psc_mpi_recv_parts(call);
    int code = psc_mpi_side_parts(&coll->in, &in, comm->size);

    set_moving(coll, PSC_COLL_ALLTOALL, 0);
    coll->args.recv_counts = coll->args.counts = coll->in.counts;
    if (call->send == MPI_IN_PLACE) {
        coll->packs_in = true;
        coll->out.memory = coll->in.memory;
    } else if (code == MPI_SUCCESS) {
        code = psc_mpi_side_parts(&coll->out, &out, comm->size);
        coll->args.counts = coll->out.counts;
    }
    return code;
}

/* ---- which is which ---- */

typedef int fill_t(coll_t *coll, call_t *call, psc_mpi_comm_t *comm);

static fill_t *const fills[PSC_MPI_COLLECTIVE_COUNT] = {
    [PSC_MPI_BARRIER] = fill_barrier,
    [PSC_MPI_BCAST] = fill_bcast,
    [PSC_MPI_REDUCE] = fill_reduce,
    [PSC_MPI_ALLREDUCE] = fill_reduce,
    [PSC_MPI_SCAN] = fill_reduce,
    [PSC_MPI_EXSCAN] = fill_reduce,
    [PSC_MPI_REDUCE_SCATTER_BLOCK] = fill_reduce_scatter_block,
    [PSC_MPI_REDUCE_SCATTER] = fill_reduce_scatter,
    [PSC_MPI_GATHER] = fill_gather,
    [PSC_MPI_SCATTER] = fill_scatter,
    [PSC_MPI_GATHERV] = fill_gatherv,
    [PSC_MPI_SCATTERV] = fill_scatterv,
    [PSC_MPI_ALLGATHER] = fill_gather,
    [PSC_MPI_ALLTOALL] = fill_alltoall,
    [PSC_MPI_ALLGATHERV] = fill_gatherv,
    [PSC_MPI_ALLTOALLV] = fill_alltoallv,
    [PSC_MPI_ALLTOALLW] = fill_alltoallv,
};

static bool has_root(psc_mpi_collective_number_t number)
{
    return number == PSC_MPI_BCAST || number == PSC_MPI_REDUCE ||
           number == PSC_MPI_GATHER || number == PSC_MPI_SCATTER ||
           number == PSC_MPI_GATHERV || number == PSC_MPI_SCATTERV;
}

int psc_mpi_coll_fill(psc_mpi_coll_t *coll, const psc_mpi_collective_t *call,
                      psc_mpi_comm_t *comm)
{
    int code;

    if (comm->both)
        return psc_mpi_between_fill(coll, call, comm);
    if (has_root(call->number) && (call->root < 0 || call->root >= comm->size))
        return MPI_ERR_ROOT;
    coll->args.root = call->root;
    code = fills[call->number](coll, call, comm);
    coll->args.send = coll->out.memory;
    coll->args.recv = coll->in.memory;
    return code;
}
