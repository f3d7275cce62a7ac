/* Items of the program's memory: how the core takes them, and copying them to
 * contiguous memory and back. The core takes contiguous memory, runs at equal
 * distances, and lists of a few pieces as they are. All other items are
 * packed. */
#include "library.h"

#include <stdlib.h>
#include <string.h>

/* ---- copying ---- */

typedef struct cursor {
    char *packed;
    size_t left; /* bytes to copy */
    bool unpacks;
    bool spaced; /* `packed` has the items as they are from `base` on */
    const char *base;
    psc_iov_t *piece; /* lists the runs instead of copying them; or NULL */
} cursor_t;

static void copy_run(cursor_t *cursor, char *at, size_t run)
{
    size_t n = run < cursor->left ? run : cursor->left;
    char *packed = cursor->packed + (cursor->spaced ? at - cursor->base : 0);

    cursor->left -= n;
    if (cursor->piece) {
        *cursor->piece++ = (psc_iov_t){at, n};
        return;
    }
    if (cursor->unpacks)
        memcpy(at, packed, n);
    else
        memcpy(packed, at, n);
    if (!cursor->spaced)
        cursor->packed += n;
}

/* Copy what is inside of one item of the dimensions before `dim`. */
static void copy_dims(cursor_t *cursor, char *at, const psc_mpi_block_t *block,
                      uint32_t dim)
{
    if (dim == PSC_MPI_DIMS || dim == block->n_dims) {
        copy_run(cursor, at, block->run);
        return;
    }
    for (uint64_t i = 0; i < block->dims[dim].n && cursor->left > 0; i++)
        copy_dims(cursor, at + (int64_t)i * block->dims[dim].stride, block,
                  dim + 1);
}

static void copy_items(const psc_mpi_data_t *data, cursor_t *cursor)
{
    const psc_mpi_type_t *type = data->type;

    for (MPI_Count i = 0; i < data->count && cursor->left > 0; i++) {
        char *item = (char *)data->base + i * type->extent;

        for (size_t k = 0; k < type->n_blocks && cursor->left > 0; k++)
            copy_dims(cursor, item + type->blocks[k].offset, type->blocks + k,
                      0);
    }
}

static void copy(const psc_mpi_data_t *data, cursor_t cursor)
{
    if (data->spaced) {
        cursor.spaced = true;
        cursor.base = data->base;
        cursor.left = (size_t)(data->count * data->type->size);
    }
    if (cursor.left > 0 && data->kind == PSC_MPI_PLAIN)
        copy_run(&cursor, data->iov[0].base, cursor.left);
    else
        copy_items(data, &cursor);
}

void psc_mpi_data_pack(const psc_mpi_data_t *data, void *packed)
{
    if (data->spaced)
        memset(packed, 0, (size_t)data->nbytes);
    copy(data, (cursor_t){.packed = packed, .left = (size_t)data->nbytes});
}

void psc_mpi_data_unpack(const psc_mpi_data_t *data, const void *packed,
                         MPI_Count nbytes)
{
    if (nbytes > data->nbytes)
        nbytes = data->nbytes;
    copy(data, (cursor_t){.packed = (char *)(uintptr_t)packed,
                          .left = (size_t)nbytes,
                          .unpacks = true});
}

/* ---- describing ---- */

static void set_plain(psc_mpi_data_t *data, const void *base)
{
    data->kind = PSC_MPI_PLAIN;
    data->iov[0] = (psc_iov_t){(void *)(uintptr_t)base, (size_t)data->nbytes};
    data->n_iov = data->nbytes > 0;
}

static void set_strided(psc_mpi_data_t *data, const psc_mpi_block_t *block)
{
    size_t n = 0;

    data->kind = PSC_MPI_STRIDED;
    if (data->count > 1)
        data->dims[n++] =
            (psc_dim_t){(uint64_t)data->count, data->type->extent};
    for (uint32_t i = 0; i < block->n_dims; i++)
        data->dims[n++] = block->dims[i];
    data->layout = (psc_layout_t){.base = (char *)data->base + block->offset,
                                  .run = block->run,
                                  .n_dims = n,
                                  .dims = data->dims};
    psc_layout_pieces(&data->layout, data->iov);
    data->n_iov = 2;
}

/* Items of a type that is not contiguous. */
static void set_items(psc_mpi_data_t *data)
{
    const psc_mpi_block_t *block = data->type->blocks;
    bool one = data->type->n_blocks == 1;

    if (one && data->count == 1 && block->n_dims == 0) {
        set_plain(data, (char *)data->base + block->offset);
        return;
    }
    psc_mpi_type_hold(data->type);
    data->holds = true;
    if (one)
        set_strided(data, block);
    else if (data->type->n_runs <= PSC_MPI_PIECES_MAX / (uint64_t)data->count)
        data->kind = PSC_MPI_PIECES;
    else
        data->kind = PSC_MPI_PACKED;
}

int psc_mpi_data_of(psc_mpi_data_t *data, const void *buffer, MPI_Count count,
                    MPI_Datatype handle)
{
    const psc_mpi_type_t *type = psc_mpi_type_find(handle);

    data->packed = NULL;
    data->pieces = NULL;
    data->holds = data->spaced = data->landed = false;
    data->nbytes = 0;
    set_plain(data, buffer);
    if (count < 0)
        return MPI_ERR_COUNT;
    if (!type || !type->committed)
        return MPI_ERR_TYPE;
    data->nbytes = count * type->size;
    data->base = (void *)(uintptr_t)buffer;
    data->count = count;
    data->type = type;
    if (!buffer && data->nbytes > 0 && !type->made)
        return MPI_ERR_BUFFER;
    if (type->n_blocks == 0 || data->nbytes == 0)
        set_plain(data, buffer);
    else
        set_items(data);
    return MPI_SUCCESS;
}

void psc_mpi_data_space(psc_mpi_data_t *data)
{
    if (!data->holds)
        psc_mpi_type_hold(data->type);
    data->holds = data->spaced = true;
    data->kind = PSC_MPI_PACKED;
    data->nbytes = data->count * data->type->extent;
}

/* ---- pieces ---- */

static int list_pieces(psc_mpi_data_t *data)
{
    size_t n = data->type->n_runs * (size_t)data->count;
    cursor_t cursor = {.left = (size_t)data->nbytes};

    if (data->pieces)
        return MPI_SUCCESS;
    cursor.piece = data->pieces = malloc(n * sizeof *data->pieces);
    if (!data->pieces)
        return MPI_ERR_NO_MEM;
    data->n_iov = n;
    copy_items(data, &cursor);
    return MPI_SUCCESS;
}

/* ---- packed memory ---- */

static int take_room(psc_mpi_data_t *data)
{
    if (!data->packed)
        data->packed = malloc((size_t)data->nbytes + 1);
    if (!data->packed)
        return MPI_ERR_NO_MEM;
    data->iov[0] = (psc_iov_t){data->packed, (size_t)data->nbytes};
    data->n_iov = 1;
    return MPI_SUCCESS;
}

int psc_mpi_data_to_send(psc_mpi_data_t *data)
{
    int code;

    if (data->kind == PSC_MPI_PIECES)
        return list_pieces(data);
    if (data->kind != PSC_MPI_PACKED)
        return MPI_SUCCESS;
    code = take_room(data);
    if (code == MPI_SUCCESS)
        psc_mpi_data_pack(data, data->packed);
    return code;
}

int psc_mpi_data_to_receive(psc_mpi_data_t *data)
{
    data->landed = false;
    if (data->kind == PSC_MPI_PIECES)
        return list_pieces(data);
    return data->kind == PSC_MPI_PACKED ? take_room(data) : MPI_SUCCESS;
}

void psc_mpi_data_land(psc_mpi_data_t *data, MPI_Count nbytes)
{
    if (data->kind == PSC_MPI_PACKED && data->packed && !data->landed)
        psc_mpi_data_unpack(data, data->packed, nbytes);
    data->landed = true;
}

void psc_mpi_data_free(psc_mpi_data_t *data)
{
    free(data->packed);
    free(data->pieces);
    if (data->holds)
        psc_mpi_type_let_go(data->type);
    data->packed = NULL;
    data->pieces = NULL;
    data->holds = false;
}
