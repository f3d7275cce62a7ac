/* Sides of a collective. The core moves contiguous memory, and parts that stand
 * one behind the other. A side that is not like that is packed into memory of
 * its own, and unpacked at the end. */
#include "sides.h"

#include <stdlib.h>

static psc_mpi_data_t *side_piece(psc_mpi_side_t *side, size_t i)
{
    return side->pieces ? side->pieces + i : &side->whole;
}

void psc_mpi_side_free(psc_mpi_side_t *side)
{
    for (size_t i = 0; i < side->n_pieces; i++)
        psc_mpi_data_free(side_piece(side, i));
    free(side->packed);
    free(side->pieces);
    free(side->counts);
}

int psc_mpi_side_take_room(psc_mpi_side_t *side)
{
    side->packed = side->memory = malloc((size_t)side->nbytes + 1);
    return side->packed ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

void psc_mpi_side_pack(psc_mpi_side_t *side)
{
    char *at = side->packed;

    for (size_t i = 0; at && i < side->n_pieces; i++) {
        psc_mpi_data_pack(side_piece(side, i), at);
        at += side_piece(side, i)->nbytes;
    }
}

void psc_mpi_side_unpack(psc_mpi_side_t *side)
{
    const char *at = side->packed;

    for (size_t i = 0; at && i < side->n_pieces; i++) {
        psc_mpi_data_t *piece = side_piece(side, i);

        psc_mpi_data_unpack(piece, at, piece->nbytes);
        at += piece->nbytes;
    }
}

/* The core knows elements of the length of the extent. */
int psc_mpi_side_operand(psc_mpi_side_t *side, const psc_mpi_type_t *type)
{
    if (!type || !type->committed)
        return MPI_ERR_TYPE;
    if (type->true_lb < 0 || type->true_lb + type->true_extent > type->extent)
        return psc_mpi_error_add(MPI_ERR_TYPE,
                                 "data outside of the type's extent cannot be "
                                 "reduced: see Type_create_resized");
    side->spaced = type->n_blocks > 0;
    return MPI_SUCCESS;
}

static int side_describe(psc_mpi_side_t *side, psc_mpi_data_t *piece,
                         const void *buffer, MPI_Count count, MPI_Datatype type)
{
    int code = psc_mpi_data_of(piece, buffer, count, type);

    if (code == MPI_SUCCESS && side->spaced)
        psc_mpi_data_space(piece);
    return code;
}

/* Items that stand one behind the other. */
int psc_mpi_side_whole(psc_mpi_side_t *side, const void *buffer,
                       MPI_Count count, MPI_Datatype type)
{
    int code = side_describe(side, &side->whole, buffer, count, type);

    if (code != MPI_SUCCESS)
        return code;
    side->n_pieces = 1;
    side->nbytes = side->whole.nbytes;
    side->memory = side->whole.iov[0].base;
    return side->whole.kind == PSC_MPI_PLAIN ? MPI_SUCCESS
                                             : psc_mpi_side_take_room(side);
}

int psc_mpi_side_copies(psc_mpi_side_t *side, const void *buffer,
                        MPI_Count count, MPI_Datatype type, int size)
{
    int code = MPI_SUCCESS;

    if (size == 1)
        return psc_mpi_side_whole(side, buffer, count, type);
    side->pieces = calloc((size_t)size, sizeof *side->pieces);
    if (!side->pieces)
        return MPI_ERR_NO_MEM;
    for (int i = 0; i < size && code == MPI_SUCCESS; i++) {
        psc_mpi_data_t *piece = side->pieces + side->n_pieces++;

        code = side_describe(side, piece, buffer, count, type);
        side->nbytes += piece->nbytes;
    }
    return code == MPI_SUCCESS ? psc_mpi_side_take_room(side) : code;
}

static int side_add(psc_mpi_side_t *side, const psc_mpi_parts_t *parts,
                    int rank)
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
static bool side_is_contiguous(const psc_mpi_side_t *side)
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
static char *side_begin(const psc_mpi_side_t *side)
{
    for (size_t i = 0; i < side->n_pieces; i++) {
        if (side->pieces[i].nbytes > 0)
            return side->pieces[i].iov[0].base;
    }
    return NULL;
}

int psc_mpi_side_parts(psc_mpi_side_t *side, const psc_mpi_parts_t *parts,
                       int size)
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
    return side_is_contiguous(side) ? MPI_SUCCESS
                                    : psc_mpi_side_take_room(side);
}
