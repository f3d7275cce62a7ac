/* Types: how many bytes items have, and where in memory they are. Now those
 * that MPI has from the start; all but pairs are contiguous. */
#include "library.h"

#include <stdlib.h>
#include <string.h>

/* A value and an int behind it: where the int begins, and the whole. */
typedef struct pair {
    MPI_Count size, extent;
} pair_t;

#define PAIR(value)                                                            \
    {sizeof(value) + sizeof(int), sizeof(struct {                              \
         value first;                                                          \
         int second;                                                           \
     })}

static const pair_t pairs[] = {PAIR(float), PAIR(double), PAIR(long),
                               PAIR(short), PAIR(long double)};

static bool type_pair(MPI_Datatype type, psc_mpi_type_t *found)
{
    uint32_t number = (uint32_t)type - (uint32_t)MPI_FLOAT_INT;
    const pair_t *pair = pairs + number;

    if (number >= sizeof pairs / sizeof *pairs)
        return false;
    *found = (psc_mpi_type_t){.size = pair->size,
                              .extent = pair->extent,
                              .true_extent = pair->extent};
    return true;
}

/* The types of one item, each at the place of its lowest byte. */
#define X(name, number) [(number) & 0xff] = (int)(number),
static const MPI_Datatype plain_types[256] = {PSC_MPI_TYPES(X)};
#undef X

bool psc_mpi_type_find(MPI_Datatype type, psc_mpi_type_t *found)
{
    MPI_Count size = (uint32_t)type >> 8 & 0xff;

    if (!type || plain_types[type & 0xff] != type)
        return type_pair(type, found);
    *found =
        (psc_mpi_type_t){.size = size, .extent = size, .true_extent = size};
    return true;
}

static bool type_is_pair(MPI_Datatype type)
{
    psc_mpi_type_t found;

    return type == MPI_2INT || type_pair(type, &found);
}

int psc_mpi_type_elements(MPI_Datatype type, MPI_Count nbytes, MPI_Count *count)
{
    psc_mpi_type_t found;
    MPI_Count whole, rest;

    if (!psc_mpi_type_find(type, &found))
        return MPI_ERR_TYPE;
    whole = nbytes / found.size;
    rest = nbytes % found.size;
    if (!type_is_pair(type))
        *count = rest ? MPI_UNDEFINED : whole;
    else if (rest && rest != found.size - (MPI_Count)sizeof(int))
        *count = MPI_UNDEFINED;
    else
        *count = 2 * whole + (rest ? 1 : 0);
    return MPI_SUCCESS;
}

/* ---- memory ---- */

/* Items with gaps between their data. */
static void data_strided(psc_mpi_data_t *data, void *base, MPI_Count count,
                         const psc_mpi_type_t *type)
{
    data->dim = (psc_dim_t){(uint64_t)count, type->extent};
    data->layout = (psc_layout_t){.base = base,
                                  .run = (size_t)type->size,
                                  .n_dims = 1,
                                  .dims = &data->dim};
    psc_layout_pieces(&data->layout, data->iov);
    data->n_iov = 2;
}

int psc_mpi_data_of(psc_mpi_data_t *data, const void *buffer, MPI_Count count,
                    MPI_Datatype type)
{
    psc_mpi_type_t found;

    if (count < 0)
        return MPI_ERR_COUNT;
    if (!psc_mpi_type_find(type, &found))
        return MPI_ERR_TYPE;
    if (!buffer && count > 0 && found.size > 0)
        return MPI_ERR_BUFFER;
    data->nbytes = count * found.size;
    data->n_iov = data->nbytes > 0;
    data->iov[0] = (psc_iov_t){(void *)buffer, (size_t)data->nbytes};
    if (count > 1 && found.size != found.extent)
        data_strided(data, (void *)buffer, count, &found);
    return MPI_SUCCESS;
}

void psc_mpi_data_pack(const psc_mpi_data_t *data, void *packed)
{
    const psc_layout_t *layout = &data->layout;
    const char *from = layout->base;
    char *to = packed;

    if (!psc_mpi_data_strided(data)) {
        if (data->nbytes > 0)
            memcpy(packed, data->iov[0].base, (size_t)data->nbytes);
        return;
    }
    for (uint64_t i = 0; i < data->dim.n; i++) {
        memcpy(to, from, layout->run);
        to += layout->run;
        from += data->dim.stride;
    }
}

void psc_mpi_data_unpack(const psc_mpi_data_t *data, const void *packed,
                         MPI_Count nbytes)
{
    const psc_layout_t *layout = &data->layout;
    size_t left = (size_t)nbytes;
    const char *from = packed;
    char *to = layout->base;

    if (!psc_mpi_data_strided(data)) {
        if (left > 0)
            memcpy(data->iov[0].base, packed, left);
        return;
    }
    while (left > 0) {
        size_t n = left < layout->run ? left : layout->run;

        memcpy(to, from, n);
        to += data->dim.stride;
        from += n;
        left -= n;
    }
}

/* ---- functions ---- */

int MPI_Type_size_c(MPI_Datatype type, MPI_Count *size)
{
    psc_mpi_type_t found;

    if (!psc_mpi_type_find(type, &found))
        return psc_mpi_raise(NULL, MPI_ERR_TYPE);
    *size = found.size;
    return MPI_SUCCESS;
}

int MPI_Type_get_extent_c(MPI_Datatype type, MPI_Count *lb, MPI_Count *extent)
{
    psc_mpi_type_t found;

    if (!psc_mpi_type_find(type, &found))
        return psc_mpi_raise(NULL, MPI_ERR_TYPE);
    *lb = found.lb;
    *extent = found.extent;
    return MPI_SUCCESS;
}

int MPI_Type_get_true_extent_c(MPI_Datatype type, MPI_Count *lb,
                               MPI_Count *extent)
{
    psc_mpi_type_t found;

    if (!psc_mpi_type_find(type, &found))
        return psc_mpi_raise(NULL, MPI_ERR_TYPE);
    *lb = found.true_lb;
    *extent = found.true_extent;
    return MPI_SUCCESS;
}

int MPI_Pack_size_c(MPI_Count count, MPI_Datatype type, MPI_Comm comm,
                    MPI_Count *size)
{
    psc_mpi_comm_t *in = psc_mpi_comm_find(comm);
    psc_mpi_type_t found;

    if (!in)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    if (count < 0)
        return psc_mpi_raise(in, MPI_ERR_COUNT);
    if (!psc_mpi_type_find(type, &found))
        return psc_mpi_raise(in, MPI_ERR_TYPE);
    *size = count * found.size;
    return MPI_SUCCESS;
}

int MPI_Pack_c(const void *buffer, MPI_Count count, MPI_Datatype type,
               void *packed, MPI_Count size, MPI_Count *position, MPI_Comm comm)
{
    psc_mpi_comm_t *in = psc_mpi_comm_find(comm);
    psc_mpi_data_t data;
    int code = psc_mpi_data_of(&data, buffer, count, type);

    if (!in)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    if (code == MPI_SUCCESS && *position + data.nbytes > size)
        code = MPI_ERR_TRUNCATE;
    if (code != MPI_SUCCESS)
        return psc_mpi_raise(in, code);
    psc_mpi_data_pack(&data, (char *)packed + *position);
    *position += data.nbytes;
    return MPI_SUCCESS;
}

int MPI_Unpack_c(const void *packed, MPI_Count size, MPI_Count *position,
                 void *buffer, MPI_Count count, MPI_Datatype type,
                 MPI_Comm comm)
{
    psc_mpi_comm_t *in = psc_mpi_comm_find(comm);
    psc_mpi_data_t data;
    int code = psc_mpi_data_of(&data, buffer, count, type);

    if (!in)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    if (code == MPI_SUCCESS && *position + data.nbytes > size)
        code = MPI_ERR_TRUNCATE;
    if (code != MPI_SUCCESS)
        return psc_mpi_raise(in, code);
    psc_mpi_data_unpack(&data, (const char *)packed + *position, data.nbytes);
    *position += data.nbytes;
    return MPI_SUCCESS;
}
