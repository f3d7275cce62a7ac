/* A program that calls functions which are made of the table, and stands for
 * what is written by hand: each of its functions asserts or keeps what it
 * gets. */
#include <assert.h>
#include <string.h>

#include "pscompy_mpi/src/entries.h"

#define LONG (1ll << 40)

int MPI_Comm_join(void); /* absent, so it has no prototype */

static psc_mpi_function_number_t function;
static intptr_t values[16];
static psc_mpi_collective_t collective;
static MPI_Count answer;

int psc_mpi_python(psc_mpi_function_number_t number, const intptr_t *given)
{
    size_t n = 0;

    for (const char *at = psc_mpi_functions[number].arguments; *at; at += 2)
        n += strchr("[]%", at[0]) ? 2 : 1;
    memcpy(values, given, n * sizeof *values);
    function = number;
    return MPI_SUCCESS;
}

int psc_mpi_collective(const psc_mpi_collective_t *call)
{
    collective = *call;
    return MPI_ERR_ROOT;
}

int MPI_Get_count_c(const MPI_Status *status, MPI_Datatype type,
                    MPI_Count *count)
{
    assert(status == MPI_STATUS_IGNORE && type == MPI_INT);
    *count = answer;
    return answer < 0 ? MPI_ERR_ARG : MPI_SUCCESS;
}

int MPI_Pack_size_c(MPI_Count count, MPI_Datatype type, MPI_Comm comm,
                    MPI_Count *size)
{
    assert(count == 3 && type == MPI_BYTE && comm == MPI_COMM_SELF);
    *size = answer;
    return MPI_SUCCESS;
}

int MPI_Unpack_c(const void *data, MPI_Count size, MPI_Count *position,
                 void *buffer, MPI_Count count, MPI_Datatype type,
                 MPI_Comm comm)
{
    assert(data && buffer && size == 8 && *position == 2 && count == 1);
    assert(type == MPI_BYTE && comm == MPI_COMM_WORLD);
    *position += 1;
    return MPI_SUCCESS;
}

static void narrow_results(void)
{
    int number = 77, position = 2;
    char bytes[8] = {0};

    answer = 5;
    assert(MPI_Get_count(MPI_STATUS_IGNORE, MPI_INT, &number) == 0);
    assert(number == 5);
    answer = -1;
    assert(MPI_Get_count(MPI_STATUS_IGNORE, MPI_INT, &number) == MPI_ERR_ARG);
    assert(number == 5);
    answer = LONG;
    assert(MPI_Pack_size(3, MPI_BYTE, MPI_COMM_SELF, &number) == 0);
    assert(number == MPI_UNDEFINED);
    assert(MPI_Unpack(bytes, 8, &position, bytes, 1, MPI_BYTE,
                      MPI_COMM_WORLD) == MPI_SUCCESS);
    assert(position == 3);
}

static void carried(void)
{
    const psc_mpi_function_t *it;
    MPI_Datatype type;
    MPI_Count blocklengths[2] = {LONG, 1};
    MPI_Count positions[2] = {0, LONG};
    char text[20];
    int room = 20, flag;

    assert(MPI_Type_indexed_c(2, blocklengths, positions, MPI_INT, &type) == 0);
    it = &psc_mpi_functions[function];
    assert(!strcmp(it->module, "types") && !strcmp(it->name, "type_indexed_c"));
    assert(!strcmp(it->arguments, ".l[l[l.t>t"));
    assert(values[0] == 2 && values[1] == (intptr_t)blocklengths);
    assert(values[2] == 2 && values[3] == (intptr_t)positions);
    assert(values[4] == 2 && values[5] == MPI_INT);
    assert(values[6] == (intptr_t)&type);

    assert(MPI_Info_get_string(MPI_INFO_ENV, "key", &room, text, &flag) == 0);
    it = &psc_mpi_functions[function];
    assert(!strcmp(it->arguments, ".f.s&i]s>i"));
    assert(values[2] == (intptr_t)&room && values[3] == (intptr_t)text);
    assert(values[4] == 20 && values[5] == (intptr_t)&flag);
}

static void collectives(void)
{
    int counts[2] = {3, 4}, displs[2] = {0, 7}, data = 1;
    MPI_Count wide_counts[2] = {LONG, 4};
    MPI_Request request = MPI_REQUEST_NULL;

    assert(MPI_Gatherv(&data, 1, MPI_INT, MPI_IN_PLACE, counts, displs, MPI_INT,
                       1, MPI_COMM_SELF) == MPI_ERR_ROOT);
    assert(collective.number == PSC_MPI_GATHERV && !collective.wide);
    assert(collective.form == PSC_MPI_BLOCKING && collective.root == 1);
    assert(collective.comm == MPI_COMM_SELF && !collective.request);
    assert(psc_mpi_count_at(collective.recv_counts, false, 1) == 4);
    assert(psc_mpi_displ_at(collective.recv_displs, false, 1) == 7);

    MPI_Reduce_scatter_init_c(&data, &data, wide_counts, MPI_INT, MPI_SUM,
                              MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    assert(collective.number == PSC_MPI_REDUCE_SCATTER && collective.wide);
    assert(collective.form == PSC_MPI_PERSISTENT && collective.op == MPI_SUM);
    assert(collective.request == &request && collective.info == MPI_INFO_NULL);
    assert(psc_mpi_count_at(collective.recv_counts, true, 0) == LONG);
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    assert(collective.form == PSC_MPI_NONBLOCKING && !collective.recv_counts);
}

static void simple_ones(void)
{
    assert(MPI_Comm_join() == PSC_MPI_ABSENT);
    assert(MPI_Comm_c2f(MPI_COMM_SELF) == MPI_COMM_SELF);
    assert(MPI_UNWEIGHTED != MPI_WEIGHTS_EMPTY);
}

int main(void)
{
    narrow_results();
    carried();
    collectives();
    simple_ones();
    return 0;
}
