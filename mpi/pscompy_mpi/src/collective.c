/* Collectives: all of MPI's, in all their forms, by those of the core.
 *
 * The core moves contiguous memory, and parts that stand one behind the other.
 * A side of a call (what is sent, what is received) that is not like that is
 * packed into memory of its own, and unpacked at the end. A reduction needs no
 * packing: an element with gaps is combined with its gaps. Parts of different
 * lengths go by pairs of ranks, because only the root knows all lengths. */
#include "library.h"

#include <stdlib.h>
#include <string.h>

/* ---- sides ---- */

typedef struct side {
    char *memory; /* what the core gets */
    char *packed; /* is `memory`, or NULL if that is the program's */
    psc_mpi_data_t *pieces; /* of the program's memory; NULL: `whole` */
    psc_mpi_data_t whole;
    size_t n_pieces;
    uint64_t *counts; /* bytes of each piece, if they have different ones */
    MPI_Count nbytes;
} side_t;

struct psc_mpi_coll {
    psc_coll_args_t args;
    psc_mpi_combine_t combine;
    side_t out, in;
    bool packs_in; /* what is received into is also read */
    bool landed; /* the result was unpacked since the last start */
    bool in_use; /* a wait was interrupted: the core uses all this for ever */
};

static psc_mpi_data_t *side_piece(side_t *side, size_t i)
{
    return side->pieces ? side->pieces + i : &side->whole;
}

static void side_free(side_t *side)
{
    for (size_t i = 0; i < side->n_pieces; i++)
        psc_mpi_data_free(side_piece(side, i));
    free(side->packed);
    free(side->pieces);
    free(side->counts);
}

static int side_take_room(side_t *side)
{
    side->packed = side->memory = malloc((size_t)side->nbytes + 1);
    return side->packed ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

static void side_pack(side_t *side)
{
    char *at = side->packed;

    for (size_t i = 0; at && i < side->n_pieces; i++) {
        psc_mpi_data_pack(side_piece(side, i), at);
        at += side_piece(side, i)->nbytes;
    }
}

static void side_unpack(side_t *side)
{
    const char *at = side->packed;

    for (size_t i = 0; at && i < side->n_pieces; i++) {
        psc_mpi_data_t *piece = side_piece(side, i);

        psc_mpi_data_unpack(piece, at, piece->nbytes);
        at += piece->nbytes;
    }
}

/* Items that stand one behind the other. */
static int side_whole(side_t *side, const void *buffer, MPI_Count count,
                      MPI_Datatype type)
{
    int code = psc_mpi_data_of(&side->whole, buffer, count, type);

    if (code != MPI_SUCCESS)
        return code;
    side->n_pieces = 1;
    side->nbytes = side->whole.nbytes;
    side->memory = side->whole.iov[0].base;
    return side->whole.kind == PSC_MPI_PLAIN ? MPI_SUCCESS
                                             : side_take_room(side);
}

/* A part for each rank: where it is, and what. */
typedef struct parts {
    const void *buffer;
    const void *counts, *displs;
    const MPI_Datatype *types; /* of each; NULL: `type`, and displs are items */
    MPI_Datatype type;
    bool wide;
} parts_t;

static int side_add(side_t *side, const parts_t *parts, int rank)
{
    MPI_Datatype type = parts->types ? parts->types[rank] : parts->type;
    MPI_Aint at = psc_mpi_displ_at(parts->displs, parts->wide, rank);
    MPI_Count count = psc_mpi_count_at(parts->counts, parts->wide, rank);
    psc_mpi_data_t *piece = side->pieces + rank;
    const psc_mpi_type_t *found = psc_mpi_type_find(type);
    int code;

    if (!found)
        return MPI_ERR_TYPE;
    if (!parts->types)
        at *= found->extent;
    code = psc_mpi_data_of(
        piece, count ? (const char *)parts->buffer + at : parts->buffer, count,
        type);
    side->counts[rank] = code == MPI_SUCCESS ? (uint64_t)piece->nbytes : 0;
    return code;
}

/* Whether the pieces stand one behind the other in the program's memory. */
static bool side_is_contiguous(const side_t *side)
{
    const char *next = NULL;

    for (size_t i = 0; i < side->n_pieces; i++) {
        const psc_mpi_data_t *piece = side->pieces + i;

        if (piece->kind != PSC_MPI_PLAIN)
            return false;
        if (piece->nbytes == 0)
            continue;
        if (next && piece->iov[0].base != next)
            return false;
        next = (const char *)piece->iov[0].base + piece->nbytes;
    }
    return true;
}

/* The first piece that is not empty begins the memory. */
static char *side_begin(const side_t *side)
{
    for (size_t i = 0; i < side->n_pieces; i++) {
        if (side->pieces[i].nbytes > 0)
            return side->pieces[i].iov[0].base;
    }
    return NULL;
}

static int side_parts(side_t *side, const parts_t *parts, int size)
{
    int code = MPI_SUCCESS;

    side->pieces = calloc((size_t)size, sizeof *side->pieces);
    side->counts = calloc((size_t)size, sizeof *side->counts);
    if (!side->pieces || !side->counts)
        return MPI_ERR_NO_MEM;
    side->n_pieces = (size_t)size;
    for (int rank = 0; rank < size && code == MPI_SUCCESS; rank++) {
        code = side_add(side, parts, rank);
        side->nbytes += (MPI_Count)side->counts[rank];
    }
    if (code != MPI_SUCCESS)
        return code;
    side->memory = side_begin(side);
    return side_is_contiguous(side) ? MPI_SUCCESS : side_take_room(side);
}

/* ---- the calls ---- */

typedef const psc_mpi_collective_t call_t;
typedef psc_mpi_coll_t coll_t;

static bool is_root(call_t *call, const psc_mpi_comm_t *comm)
{
    return call->root == comm->rank;
}

static parts_t send_parts(call_t *call)
{
    return (parts_t){.buffer = call->send,
                     .counts = call->send_counts,
                     .displs = call->send_displs,
                     .types = call->send_types,
                     .type = call->send_type,
                     .wide = call->wide};
}

static parts_t recv_parts(call_t *call)
{
    return (parts_t){.buffer = call->recv,
                     .counts = call->recv_counts,
                     .displs = call->recv_displs,
                     .types = call->recv_types,
                     .type = call->recv_type,
                     .wide = call->wide};
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
    int code = side_whole(&coll->in, call->recv, call->count, call->type);

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

    if (count < 0)
        return MPI_ERR_COUNT;
    if (!found || !found->committed)
        return MPI_ERR_TYPE;
    coll->args.size = (uint64_t)found->extent;
    coll->args.count = (uint64_t)count;
    coll->out.memory = (char *)call->send;
    coll->in.memory = call->recv;
    if (call->send == MPI_IN_PLACE)
        coll->out.memory = call->recv;
    return psc_mpi_op_fill(&coll->args, &coll->combine, call->op, call->type);
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
    if (call->number == PSC_MPI_REDUCE && !is_root(call, comm))
        coll->in.memory = NULL;
    return code;
}

/* In place the operand is longer than the result, so it is read from a copy. */
static int copy_operand(coll_t *coll, call_t *call, uint64_t n)
{
    if (call->send != MPI_IN_PLACE)
        return MPI_SUCCESS;
    coll->out.nbytes = (MPI_Count)(n * coll->args.size);
    coll->out.whole.iov[0].base = call->recv;
    coll->out.whole.nbytes = coll->out.nbytes;
    coll->out.whole.n_iov = coll->out.n_pieces = 1;
    return side_take_room(&coll->out);
}

static int fill_reduce_scatter_block(coll_t *coll, call_t *call,
                                     psc_mpi_comm_t *comm)
{
    int code = fill_operand(coll, call, call->count);

    coll->args.coll = PSC_COLL_REDUCE_SCATTER;
    if (code != MPI_SUCCESS)
        return code;
    return copy_operand(coll, call, coll->args.count * (uint64_t)comm->size);
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
    return copy_operand(coll, call, n);
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
    return side_whole(&coll->out, call->send, call->send_count * parts,
                      call->send_type);
}

static int fill_recv(coll_t *coll, call_t *call, MPI_Count parts)
{
    return side_whole(&coll->in, call->recv, call->recv_count * parts,
                      call->recv_type);
}

/* This rank's own part stands in the result already. */
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
static int set_own_count(coll_t *coll, side_t *side, const psc_mpi_comm_t *comm)
{
    side->counts = calloc((size_t)comm->size, sizeof *side->counts);
    if (!side->counts)
        return MPI_ERR_NO_MEM;
    side->counts[comm->rank] = (uint64_t)side->nbytes;
    coll->args.counts = side->counts;
    return MPI_SUCCESS;
}

static MPI_Count part_begin(const side_t *side, int rank)
{
    MPI_Count begin = 0;

    for (int i = 0; i < rank; i++)
        begin += (MPI_Count)side->counts[i];
    return begin;
}

static int fill_gatherv(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    bool all = call->number == PSC_MPI_ALLGATHERV;
    const parts_t parts = recv_parts(call);
    int code = MPI_SUCCESS;

    set_moving(coll, all ? PSC_COLL_ALLGATHER : PSC_COLL_GATHER, 0);
    coll->args.algorithm = "pairs";
    if (call->send != MPI_IN_PLACE)
        code = fill_send(coll, call, 1);
    if (code != MPI_SUCCESS)
        return code;
    if (!all && !is_root(call, comm))
        return set_own_count(coll, &coll->out, comm);
    code = side_parts(&coll->in, &parts, comm->size);
    coll->args.counts = coll->in.counts;
    if (code == MPI_SUCCESS && call->send == MPI_IN_PLACE)
        use_own_part(coll, 1, part_begin(&coll->in, comm->rank));
    return code;
}

static int fill_scatterv(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    const parts_t parts = send_parts(call);
    int code = MPI_SUCCESS;

    set_moving(coll, PSC_COLL_SCATTER, 0);
    coll->args.algorithm = "pairs";
    if (call->recv != MPI_IN_PLACE)
        code = fill_recv(coll, call, 1);
    if (code != MPI_SUCCESS)
        return code;
    if (!is_root(call, comm))
        return set_own_count(coll, &coll->in, comm);
    code = side_parts(&coll->out, &parts, comm->size);
    coll->args.counts = coll->out.counts;
    if (code == MPI_SUCCESS && call->recv == MPI_IN_PLACE)
        coll->in.memory = coll->out.memory + part_begin(&coll->out, comm->rank);
    return code;
}

static int fill_alltoallv(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    const parts_t out = send_parts(call), in = recv_parts(call);
    int code = side_parts(&coll->in, &in, comm->size);

    set_moving(coll, PSC_COLL_ALLTOALL, 0);
    coll->args.recv_counts = coll->args.counts = coll->in.counts;
    if (call->send == MPI_IN_PLACE) {
        coll->packs_in = true;
        coll->out.memory = coll->in.memory;
    } else if (code == MPI_SUCCESS) {
        code = side_parts(&coll->out, &out, comm->size);
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

static int coll_fill(coll_t *coll, call_t *call, psc_mpi_comm_t *comm)
{
    int code;

    if (has_root(call->number) && (call->root < 0 || call->root >= comm->size))
        return MPI_ERR_ROOT;
    coll->args.root = call->root;
    code = fills[call->number](coll, call, comm);
    coll->args.send = coll->out.memory;
    coll->args.recv = coll->in.memory;
    return code;
}

/* ---- starting and ending ---- */

static int coll_status(int status)
{
    if (status == PSC_ERR_UNSUPPORTED)
        return MPI_ERR_OP;
    return psc_mpi_error_of(status, -1);
}

static int group_of(psc_mpi_comm_t *comm)
{
    const psc_group_args_t args = {.context =
                                       comm->context | PSC_CONTEXT_OBJECTS,
                                   .rank = comm->rank,
                                   .size = comm->size,
                                   .members = comm->members};
    psc_status_t status = PSC_OK;

    if (!comm->group)
        status = psc_mpi.host.api->group_create(psc_mpi.host.worker, &args,
                                                &comm->group);
    return status == PSC_OK ? MPI_SUCCESS : psc_mpi_error_of(status, -1);
}

/* Open the connection that the collective lacks. */
static psc_status_t coll_connect(psc_mpi_comm_t *comm)
{
    const psc_api_t *api = psc_mpi.host.api;
    int rank = api->group_wanted(comm->group);
    psc_conn_t *conn = rank < 0 ? NULL : psc_mpi_comm_conn(comm, rank);

    return conn ? api->group_connect(comm->group, rank, conn) : PSC_ERR_CONNECT;
}

int psc_mpi_coll_start(psc_mpi_comm_t *comm, psc_mpi_coll_t *coll,
                       psc_request_t **core_p)
{
    const psc_api_t *api = psc_mpi.host.api;
    psc_status_t status;

    side_pack(&coll->out);
    if (coll->packs_in)
        side_pack(&coll->in);
    coll->landed = false;
    do {
        status = api->coll_start(comm->group, &coll->args, core_p);
    } while (status == PSC_ERR_NO_RESOURCE && coll_connect(comm) == PSC_OK);
    return status >= PSC_OK ? MPI_SUCCESS : coll_status(status);
}

int psc_mpi_coll_land(const psc_mpi_comm_t *comm, psc_mpi_coll_t *coll,
                      const psc_result_t *result)
{
    if (result->status != PSC_OK)
        return psc_mpi_error_of(result->status,
                                psc_mpi_comm_peer(comm, result->rank));
    if (!coll->landed)
        side_unpack(&coll->in);
    coll->landed = true;
    return MPI_SUCCESS;
}

void psc_mpi_coll_free(psc_mpi_coll_t *coll)
{
    if (!coll || coll->in_use)
        return;
    if (coll->args.persistent)
        psc_mpi.host.api->coll_free(coll->args.persistent);
    side_free(&coll->out);
    side_free(&coll->in);
    free(coll);
}

/* ---- the three forms ---- */

static int blocking(psc_mpi_comm_t *comm, coll_t *coll)
{
    psc_result_t result = {.status = PSC_OK};
    psc_request_t *core = NULL;
    int code = psc_mpi_coll_start(comm, coll, &core);

    while (code == MPI_SUCCESS && core &&
           psc_request_state(core) != PSC_REQUEST_DONE) {
        code = psc_mpi_wait(&core, 1, PSC_WAIT_ALL);
        if (psc_request_state(core) == PSC_REQUEST_MATCHED)
            psc_mpi.host.api->coll_call(core);
    }
    if (code != MPI_SUCCESS) {
        coll->in_use = core != NULL;
        return code;
    }
    if (core) {
        result = core->result;
        psc_mpi.host.api->request_free(core);
    }
    return psc_mpi_coll_land(comm, coll, &result);
}

static int describe(psc_mpi_comm_t *comm, coll_t *coll)
{
    psc_status_t status = psc_mpi.host.api->coll_init(comm->group, &coll->args,
                                                      &coll->args.persistent);

    return status == PSC_OK ? MPI_SUCCESS : coll_status(status);
}

static int with_request(call_t *call, psc_mpi_comm_t *comm, coll_t *coll)
{
    psc_mpi_request_t *request = psc_mpi_request_create(comm);
    int code;

    if (!request)
        return MPI_ERR_NO_MEM;
    request->persistent = call->form == PSC_MPI_PERSISTENT;
    request->active = !request->persistent;
    if (request->persistent)
        code = describe(comm, coll);
    else
        code = psc_mpi_coll_start(comm, coll, &request->core);
    if (code != MPI_SUCCESS) {
        psc_mpi_request_free(request);
        return code;
    }
    request->coll = coll;
    *call->request = psc_mpi_object_handle(request);
    return MPI_SUCCESS;
}

int psc_mpi_collective(const psc_mpi_collective_t *call)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(call->comm);
    coll_t *coll;
    int code;

    if (!comm)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    if (!fills[call->number])
        return PSC_MPI_ABSENT;
    coll = calloc(1, sizeof *coll);
    code = coll ? group_of(comm) : MPI_ERR_NO_MEM;
    if (code == MPI_SUCCESS)
        code = coll_fill(coll, call, comm);
    if (code == MPI_SUCCESS)
        code = call->form == PSC_MPI_BLOCKING ? blocking(comm, coll)
                                              : with_request(call, comm, coll);
    if (code != MPI_SUCCESS || call->form == PSC_MPI_BLOCKING)
        psc_mpi_coll_free(coll);
    return code == MPI_SUCCESS ? code : psc_mpi_raise(comm, code);
}
