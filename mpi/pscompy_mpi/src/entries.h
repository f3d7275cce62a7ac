/* The functions that generated ones call. generate.py makes functions.h and
 * functions.c of the table in functions.py: a function that lives in Python
 * calls psc_mpi_python with its arguments, a collective calls
 * psc_mpi_collective, and the form with int of a function that is written by
 * hand calls the one with MPI_Count. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "functions.h"

/* ---- functions that live in Python ---- */

/* How an argument goes, and what it is: the two characters that describe it in
 * psc_mpi_function_t. An array takes two of the values that psc_mpi_python
 * gets: its address, and its number of elements (of a text: the room in bytes,
 * with the 0 at its end). A number below 0, the program's error, counts as 0.
 * All others take one value. */
typedef enum psc_mpi_way {
    PSC_MPI_VALUE = '.',
    PSC_MPI_RESULT = '>', /* the address of where one result goes */
    PSC_MPI_BOTH = '&', /* the address of a value that is replaced */
    PSC_MPI_ARRAY = '[',
    PSC_MPI_ARRAY_RESULT = ']',
    PSC_MPI_ARRAY_BOTH = '%'
} psc_mpi_way_t;

typedef enum psc_mpi_code {
    PSC_MPI_CODE_INT = 'i',
    PSC_MPI_CODE_LONG = 'l', /* MPI_Aint or MPI_Count */
    PSC_MPI_CODE_COMM = 'c',
    PSC_MPI_CODE_GROUP = 'g',
    PSC_MPI_CODE_TYPE = 't',
    PSC_MPI_CODE_OP = 'o',
    PSC_MPI_CODE_ERRHANDLER = 'e',
    PSC_MPI_CODE_INFO = 'f',
    PSC_MPI_CODE_REQUEST = 'r',
    PSC_MPI_CODE_MESSAGE = 'm',
    PSC_MPI_CODE_WIN = 'w',
    PSC_MPI_CODE_TEXT = 's', /* of chars, ends with 0 */
    PSC_MPI_CODE_ADDRESS = 'p' /* an address that Python gets as a number */
} psc_mpi_code_t;

typedef struct psc_mpi_function {
    /* pscompy_mpi.<module>.<name>; a name with _c stands for the one without if
     * there is none */
    const char *module, *name;
    const char *arguments; /* two characters for each; see above */
} psc_mpi_function_t;

extern const psc_mpi_function_t psc_mpi_functions[PSC_MPI_FUNCTION_COUNT];

/* The carrier. Converts the arguments that are values, calls the function, and
 * writes what it returns: nothing, one result, or a tuple of them in the order
 * of the arguments. A result that is None is a null handle, and otherwise is
 * not written. Takes the GIL. Returns the code of an error, and calls the error
 * handler of the first communicator or window among the arguments, if Python
 * has raised an exception; PSC_MPI_ABSENT if there is no such function in
 * Python; MPI_ERR_OTHER once the interpreter has ended. */
int psc_mpi_python(psc_mpi_function_number_t function, const intptr_t *values);

/* ---- collectives ---- */

typedef enum psc_mpi_form {
    PSC_MPI_BLOCKING,
    PSC_MPI_NONBLOCKING, /* MPI_I...: `request` */
    PSC_MPI_PERSISTENT /* MPI_..._init: `info` and `request` */
} psc_mpi_form_t;

/* A call of a collective. Members that the collective does not have are 0. */
typedef struct psc_mpi_collective {
    psc_mpi_collective_number_t number;
    psc_mpi_form_t form;
    /* Counts are MPI_Count and displacements are MPI_Aint; otherwise both are
     * int (psc_mpi_count_at, psc_mpi_displ_at). */
    bool wide;
    MPI_Comm comm;
    int root;
    MPI_Op op;
    MPI_Datatype type, send_type, recv_type;
    MPI_Count count, send_count, recv_count;
    const void *send; /* or MPI_IN_PLACE */
    void *recv;
    /* an element for each rank */
    const void *send_counts, *send_displs, *recv_counts, *recv_displs;
    const MPI_Datatype *send_types, *recv_types;
    MPI_Info info;
    MPI_Request *request;
} psc_mpi_collective_t;

int psc_mpi_collective(const psc_mpi_collective_t *call);

static inline MPI_Count psc_mpi_count_at(const void *counts, bool wide, int i)
{
    return wide ? ((const MPI_Count *)counts)[i] : ((const int *)counts)[i];
}

static inline MPI_Aint psc_mpi_displ_at(const void *displs, bool wide, int i)
{
    return wide ? ((const MPI_Aint *)displs)[i] : ((const int *)displs)[i];
}

/* ---- forms with int ---- */

/* Returns MPI_UNDEFINED for a number that an int cannot have. */
static inline int psc_mpi_narrow(MPI_Count number)
{
    return number > INT_MAX || number < INT_MIN ? MPI_UNDEFINED : (int)number;
}
