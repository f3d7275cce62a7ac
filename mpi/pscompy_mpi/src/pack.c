/* MPI_Pack and MPI_Unpack, and their forms for external32, whose numbers have
 * their highest byte first. */
#include "library.h"

#include <stdlib.h>
#include <string.h>

/* ---- as the machine has them ---- */

/* The first step of a call. Returns the code of an error. */
static int pack_begin(MPI_Comm handle, psc_mpi_comm_t **comm_p,
                      const psc_mpi_data_t *data, int code, MPI_Count position,
                      MPI_Count size)
{
    *comm_p = psc_mpi_comm_find(handle);
    if (!*comm_p)
        return MPI_ERR_COMM;
    if (code == MPI_SUCCESS && (position < 0 || data->nbytes > size - position))
        return MPI_ERR_TRUNCATE;
    return code;
}

int MPI_Pack_size_c(MPI_Count count, MPI_Datatype type, MPI_Comm handle,
                    MPI_Count *size)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);
    const psc_mpi_type_t *found = psc_mpi_type_find(type);

    if (!comm)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    if (count < 0 || !found)
        return psc_mpi_raise(comm, found ? MPI_ERR_COUNT : MPI_ERR_TYPE);
    *size = count * found->size;
    return MPI_SUCCESS;
}

int MPI_Pack_c(const void *buffer, MPI_Count count, MPI_Datatype type,
               void *packed, MPI_Count size, MPI_Count *position,
               MPI_Comm handle)
{
    psc_mpi_comm_t *comm;
    psc_mpi_data_t data;
    int code = psc_mpi_data_of(&data, buffer, count, type);

    code = pack_begin(handle, &comm, &data, code, *position, size);
    if (code == MPI_SUCCESS) {
        psc_mpi_data_pack(&data, (char *)packed + *position);
        *position += data.nbytes;
    }
    psc_mpi_data_free(&data);
    return code == MPI_SUCCESS ? code : psc_mpi_raise(comm, code);
}

int MPI_Unpack_c(const void *packed, MPI_Count size, MPI_Count *position,
                 void *buffer, MPI_Count count, MPI_Datatype type,
                 MPI_Comm handle)
{
    psc_mpi_comm_t *comm;
    psc_mpi_data_t data;
    int code = psc_mpi_data_of(&data, buffer, count, type);

    code = pack_begin(handle, &comm, &data, code, *position, size);
    if (code == MPI_SUCCESS) {
        psc_mpi_data_unpack(&data, (const char *)packed + *position,
                            data.nbytes);
        *position += data.nbytes;
    }
    psc_mpi_data_free(&data);
    return code == MPI_SUCCESS ? code : psc_mpi_raise(comm, code);
}

/* ---- external32 ---- */

static void swap_bytes(char *at, MPI_Count size)
{
    for (MPI_Count i = 0; i < size / 2; i++) {
        char byte = at[i];

        at[i] = at[size - 1 - i];
        at[size - 1 - i] = byte;
    }
}

static char *swap_elements(char *at, MPI_Count size, MPI_Count n)
{
    for (MPI_Count i = 0; i < n; i++, at += size)
        swap_bytes(at, size);
    return at;
}

/* Bytes and complex numbers are not one number. */
static MPI_Count element_size(const psc_mpi_type_t *type)
{
    switch (type->handle) {
    case MPI_2INT:
    case MPI_COMPLEX:
    case MPI_DOUBLE_COMPLEX:
    case MPI_COMPLEX8:
    case MPI_COMPLEX16:
    case MPI_COMPLEX32:
    case MPI_C_FLOAT_COMPLEX:
    case MPI_C_DOUBLE_COMPLEX:
    case MPI_C_LONG_DOUBLE_COMPLEX:
    case MPI_CXX_FLOAT_COMPLEX:
    case MPI_CXX_DOUBLE_COMPLEX:
    case MPI_CXX_LONG_DOUBLE_COMPLEX:
        return type->size / 2;
    default:
        return type->size;
    }
}

/* Turn the bytes of all numbers of packed items round. */
static void swap_items(char *at, const psc_mpi_type_t *type, MPI_Count count)
{
    if (!type->n_elements && type->size > 0)
        swap_elements(at, element_size(type),
                      count * (type->size / element_size(type)));
    for (MPI_Count k = 0; k < count * type->times; k++) {
        for (size_t i = 0; i < type->n_elements; i++)
            at = swap_elements(at, type->elements[i].size, type->elements[i].n);
    }
}

static int external_begin(const char *name, const psc_mpi_data_t *data,
                          int code, MPI_Count position, MPI_Count size)
{
    if (strcmp(name, "external32") != 0)
        return MPI_ERR_ARG;
    if (code == MPI_SUCCESS && (position < 0 || data->nbytes > size - position))
        return MPI_ERR_TRUNCATE;
    return code;
}

int MPI_Pack_external_size_c(const char *name, MPI_Count count,
                             MPI_Datatype type, MPI_Count *size)
{
    const psc_mpi_type_t *found = psc_mpi_type_find(type);

    if (strcmp(name, "external32") != 0)
        return psc_mpi_raise(NULL, MPI_ERR_ARG);
    if (count < 0 || !found)
        return psc_mpi_raise(NULL, found ? MPI_ERR_COUNT : MPI_ERR_TYPE);
    *size = count * found->size;
    return MPI_SUCCESS;
}

int MPI_Pack_external_c(const char *name, const void *buffer, MPI_Count count,
                        MPI_Datatype type, void *packed, MPI_Count size,
                        MPI_Count *position)
{
    psc_mpi_data_t data;
    int code = psc_mpi_data_of(&data, buffer, count, type);
    char *at = (char *)packed + *position;

    code = external_begin(name, &data, code, *position, size);
    if (code == MPI_SUCCESS) {
        psc_mpi_data_pack(&data, at);
        swap_items(at, data.type, count);
        *position += data.nbytes;
    }
    psc_mpi_data_free(&data);
    return code == MPI_SUCCESS ? code : psc_mpi_raise(NULL, code);
}

/* The packed bytes are the program's, so they are turned round in a copy. */
static int unpack_external(const psc_mpi_data_t *data, const char *at)
{
    char *copy = malloc((size_t)data->nbytes + 1);

    if (!copy)
        return MPI_ERR_NO_MEM;
    memcpy(copy, at, (size_t)data->nbytes);
    swap_items(copy, data->type, data->count);
    psc_mpi_data_unpack(data, copy, data->nbytes);
    free(copy);
    return MPI_SUCCESS;
}

int MPI_Unpack_external_c(const char *name, const void *packed, MPI_Count size,
                          MPI_Count *position, void *buffer, MPI_Count count,
                          MPI_Datatype type)
{
    psc_mpi_data_t data;
    int code = psc_mpi_data_of(&data, buffer, count, type);

    code = external_begin(name, &data, code, *position, size);
    if (code == MPI_SUCCESS)
        code = unpack_external(&data, (const char *)packed + *position);
    if (code == MPI_SUCCESS)
        *position += data.nbytes;
    psc_mpi_data_free(&data);
    return code == MPI_SUCCESS ? code : psc_mpi_raise(NULL, code);
}
