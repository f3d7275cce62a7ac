/* MPI_Status: what a receive, a probe or a request reports. Every function that
 * fills one in accepts MPI_STATUS_IGNORE. */
#include "library.h"

#include <string.h>

#define CANCELLED 1

void psc_mpi_status_set(MPI_Status *status, int source, int tag,
                        MPI_Count nbytes)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    status->count_low = (int)(uint32_t)nbytes;
    status->count_high_and_cancelled = (int)(nbytes >> 32 << 1);
    status->MPI_SOURCE = source;
    status->MPI_TAG = tag;
}

void psc_mpi_status_empty(MPI_Status *status)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    psc_mpi_status_set(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    status->MPI_ERROR = MPI_SUCCESS;
}

void psc_mpi_status_proc_null(MPI_Status *status)
{
    psc_mpi_status_set(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
}

void psc_mpi_status_of(MPI_Status *status, const psc_mpi_comm_t *comm,
                       const psc_result_t *result)
{
    psc_mpi_status_set(status, psc_mpi_comm_rank_of(comm, result->rank),
                       result->tag, (MPI_Count)result->nbytes);
}

void psc_mpi_status_cancelled(MPI_Status *status, bool cancelled)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    status->count_high_and_cancelled &= ~CANCELLED;
    status->count_high_and_cancelled |= cancelled ? CANCELLED : 0;
}

MPI_Count psc_mpi_status_nbytes(const MPI_Status *status)
{
    uint64_t high = (uint32_t)status->count_high_and_cancelled >> 1;

    return (MPI_Count)(high << 32 | (uint32_t)status->count_low);
}

/* ---- counts ---- */

/* Returns the code of an error, also if no status was given. */
static int status_type(const MPI_Status *status, MPI_Datatype type,
                       const psc_mpi_type_t **found_p)
{
    *found_p = psc_mpi_type_find(type);
    if (status == MPI_STATUS_IGNORE)
        return MPI_ERR_ARG;
    return *found_p ? MPI_SUCCESS : MPI_ERR_TYPE;
}

int MPI_Get_count_c(const MPI_Status *status, MPI_Datatype type,
                    MPI_Count *count)
{
    const psc_mpi_type_t *found;
    int code = status_type(status, type, &found);
    MPI_Count nbytes;

    if (code != MPI_SUCCESS)
        return psc_mpi_raise(NULL, code);
    nbytes = psc_mpi_status_nbytes(status);
    if (found->size == 0)
        *count = nbytes ? MPI_UNDEFINED : 0;
    else
        *count = nbytes % found->size ? MPI_UNDEFINED : nbytes / found->size;
    return MPI_SUCCESS;
}

int MPI_Get_elements_c(const MPI_Status *status, MPI_Datatype type,
                       MPI_Count *count)
{
    const psc_mpi_type_t *found;
    int code = status_type(status, type, &found);

    if (code != MPI_SUCCESS)
        return psc_mpi_raise(NULL, code);
    *count = psc_mpi_type_elements(found, psc_mpi_status_nbytes(status));
    return MPI_SUCCESS;
}

/* Returns the bytes of so many elements. */
static MPI_Count bytes_of(const psc_mpi_type_t *type, MPI_Count count)
{
    MPI_Count each = psc_mpi_type_elements(type, type->size);
    MPI_Count nbytes;

    if (each <= 0)
        return 0;
    nbytes = count / each * type->size;
    count %= each;
    for (size_t i = 0; count > 0; i = (i + 1) % type->n_elements) {
        MPI_Count n = type->elements[i].n;

        n = n < count ? n : count;
        nbytes += n * type->elements[i].size;
        count -= n;
    }
    return nbytes;
}

int MPI_Status_set_elements_c(MPI_Status *status, MPI_Datatype type,
                              MPI_Count count)
{
    const psc_mpi_type_t *found;
    int code = status_type(status, type, &found);
    int cancelled;

    if (code == MPI_SUCCESS && count < 0)
        code = MPI_ERR_COUNT;
    if (code != MPI_SUCCESS)
        return psc_mpi_raise(NULL, code);
    cancelled = status->count_high_and_cancelled & CANCELLED;
    psc_mpi_status_set(status, status->MPI_SOURCE, status->MPI_TAG,
                       found->n_elements ? bytes_of(found, count)
                                         : count * found->size);
    status->count_high_and_cancelled |= cancelled;
    return MPI_SUCCESS;
}

/* ---- members ---- */

int MPI_Status_set_cancelled(MPI_Status *status, int flag)
{
    psc_mpi_status_cancelled(status, flag != 0);
    return MPI_SUCCESS;
}

int MPI_Test_cancelled(const MPI_Status *status, int *flag)
{
    *flag = status->count_high_and_cancelled & CANCELLED;
    return MPI_SUCCESS;
}

int MPI_Status_get_source(const MPI_Status *status, int *n)
{
    *n = status->MPI_SOURCE;
    return MPI_SUCCESS;
}

int MPI_Status_get_tag(const MPI_Status *status, int *n)
{
    *n = status->MPI_TAG;
    return MPI_SUCCESS;
}

int MPI_Status_get_error(const MPI_Status *status, int *n)
{
    *n = status->MPI_ERROR;
    return MPI_SUCCESS;
}

int MPI_Status_set_source(MPI_Status *status, int n)
{
    status->MPI_SOURCE = n;
    return MPI_SUCCESS;
}

int MPI_Status_set_tag(MPI_Status *status, int n)
{
    status->MPI_TAG = n;
    return MPI_SUCCESS;
}

int MPI_Status_set_error(MPI_Status *status, int n)
{
    status->MPI_ERROR = n;
    return MPI_SUCCESS;
}

int MPI_Status_c2f(const MPI_Status *status, MPI_Fint integers[])
{
    memcpy(integers, status, sizeof *status);
    return MPI_SUCCESS;
}

int MPI_Status_f2c(const MPI_Fint integers[], MPI_Status *status)
{
    memcpy(status, integers, sizeof *status);
    return MPI_SUCCESS;
}
