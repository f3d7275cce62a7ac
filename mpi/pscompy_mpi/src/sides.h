/* The sides of a collective (what is sent, what is received), as the core takes
 * them, and what is kept of a collective that was called. */
#pragma once

#include "library.h"

typedef struct psc_mpi_side {
    char *memory; /* what the core gets */
    char *packed; /* is `memory`, or NULL if that is the program's */
    psc_mpi_data_t *pieces; /* of the program's memory; NULL: `whole` */
    psc_mpi_data_t whole;
    size_t n_pieces;
    uint64_t *counts; /* bytes of each piece, if they have different ones */
    MPI_Count nbytes;
    bool spaced; /* `packed` has the gaps of items; set before the pieces */
} psc_mpi_side_t;

/* Operands of several ranks, of which this rank combines what it needs. */
typedef struct psc_mpi_fold {
    int n_operands; /* 0: there is nothing to combine */
    uint64_t nbytes; /* of an operand */
    uint64_t begin; /* of the part that is needed, in bytes */
    psc_coll_args_t args; /* the operation, and how many elements it needs */
    psc_mpi_data_t result;
} psc_mpi_fold_t;

struct psc_mpi_coll {
    psc_group_t *group;
    psc_coll_args_t args;
    psc_mpi_combine_t combine;
    psc_mpi_side_t out, in;
    psc_mpi_fold_t fold;
    bool packs_in; /* what is received into is also read */
    bool landed; /* the result was unpacked since the last start */
    bool in_use; /* a wait was interrupted: the core uses all this for ever */
};

/* A part for each rank: where it is, and what. */
typedef struct psc_mpi_parts {
    const void *buffer;
    const void *counts, *displs;
    const MPI_Datatype *types; /* of each; NULL: `type`, and displs are items */
    MPI_Datatype type;
    bool wide;
} psc_mpi_parts_t;

/* The parts that a call describes. */
static inline psc_mpi_parts_t
psc_mpi_send_parts(const psc_mpi_collective_t *call)
{
    return (psc_mpi_parts_t){.buffer = call->send,
                             .counts = call->send_counts,
                             .displs = call->send_displs,
                             .types = call->send_types,
                             .type = call->send_type,
                             .wide = call->wide};
}

static inline psc_mpi_parts_t
psc_mpi_recv_parts(const psc_mpi_collective_t *call)
{
    return (psc_mpi_parts_t){.buffer = call->recv,
                             .counts = call->recv_counts,
                             .displs = call->recv_displs,
                             .types = call->recv_types,
                             .type = call->recv_type,
                             .wide = call->wide};
}

/* ---- sides.c ---- */

/* Items that stand one behind the other, or the same items for each of `size`
 * ranks, or a part for each. Return the code of an error; psc_mpi_side_free
 * ends all, also then. */
int psc_mpi_side_whole(psc_mpi_side_t *side, const void *buffer,
                       MPI_Count count, MPI_Datatype type);
int psc_mpi_side_copies(psc_mpi_side_t *side, const void *buffer,
                        MPI_Count count, MPI_Datatype type, int size);
int psc_mpi_side_parts(psc_mpi_side_t *side, const psc_mpi_parts_t *parts,
                       int size);
void psc_mpi_side_free(psc_mpi_side_t *side);
/* Say for an operand whether its type has gaps, which a reduction must not
 * change. Returns the code of an error if the type cannot be reduced. */
int psc_mpi_side_operand(psc_mpi_side_t *side, const psc_mpi_type_t *type);
/* Let the side have memory of its own of `nbytes`. */
int psc_mpi_side_take_room(psc_mpi_side_t *side);
/* Copy all pieces into that memory, or from it. */
void psc_mpi_side_pack(psc_mpi_side_t *side);
void psc_mpi_side_unpack(psc_mpi_side_t *side);

/* ---- between.c ---- */

/* Like psc_mpi_coll_fill, for an inter-communicator. */
int psc_mpi_between_fill(psc_mpi_coll_t *coll, const psc_mpi_collective_t *call,
                         const psc_mpi_comm_t *comm);
/* Combine operands that stand one behind the other, of which the last one is
 * changed. Returns the code of an error. */
int psc_mpi_fold(const psc_mpi_fold_t *fold, char *operands);

/* ---- fill.c ---- */

/* Fill in the core's arguments for a call. Returns the code of an error. */
int psc_mpi_coll_fill(psc_mpi_coll_t *coll, const psc_mpi_collective_t *call,
                      psc_mpi_comm_t *comm);
