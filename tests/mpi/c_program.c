/* A program in C, by the prototypes that generate.py makes: messages, types,
 * collectives, functions of the program that MPI calls, communicators, errors
 * and threads. It prints the first check that fails, or "well". */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "functions.h"

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition))                                                      \
            failed(__LINE__, #condition);                                      \
    } while (0)

enum { ROWS = 5, COLUMNS = 4, LONG = 300000, THREADS = 3, TURNS = 50 };

static int rank, size, right, left;

static void failed(int line, const char *condition)
{
    printf("line %d: %s\n", line, condition);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- messages ---- */

static void check_ring(int n)
{
    double *out = malloc((size_t)n * sizeof *out);
    double *in = calloc((size_t)n, sizeof *in);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int count;

    for (int i = 0; i < n; i++)
        out[i] = rank + i;
    MPI_Irecv(in, n, MPI_DOUBLE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, requests);
    MPI_Isend(out, n, MPI_DOUBLE, right, 3, MPI_COMM_WORLD, requests + 1);
    MPI_Waitall(2, requests, statuses);
    MPI_Get_count(statuses, MPI_DOUBLE, &count);
    CHECK(count == n && statuses[0].MPI_SOURCE == left);
    CHECK(requests[0] == MPI_REQUEST_NULL && in[n - 1] == left + n - 1);
    free(out);
    free(in);
}

static void check_probe(void)
{
    char text[32] = "";
    MPI_Message message;
    MPI_Status status;
    MPI_Count count;

    MPI_Sendrecv(&rank, 1, MPI_INT, right, 4, text, 4, MPI_BYTE, left, 4,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send("greetings", 10, MPI_CHAR, right, 5, MPI_COMM_WORLD);
    MPI_Mprobe(left, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
    MPI_Get_count_c(&status, MPI_CHAR, &count);
    CHECK(count == 10 && status.MPI_TAG == 5);
    MPI_Mrecv(text, 10, MPI_CHAR, &message, &status);
    CHECK(strcmp(text, "greetings") == 0);
}

static void check_persistent(void)
{
    int out = 0, in = -1;
    MPI_Request requests[2];
    MPI_Status statuses[2];

    MPI_Send_init(&out, 1, MPI_INT, right, 6, MPI_COMM_WORLD, requests);
    MPI_Recv_init(&in, 1, MPI_INT, left, 6, MPI_COMM_WORLD, requests + 1);
    for (out = 0; out < 5; out++) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, statuses);
        CHECK(in == out);
    }
    MPI_Request_free(requests);
    MPI_Request_free(requests + 1);
}

/* ---- types ---- */

static void check_column(void)
{
    double matrix[ROWS][COLUMNS], got[ROWS];
    MPI_Datatype column;

    for (int i = 0; i < ROWS * COLUMNS; i++)
        matrix[i / COLUMNS][i % COLUMNS] = 100 * rank + i;
    MPI_Type_vector(ROWS, 1, COLUMNS, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    MPI_Sendrecv(&matrix[0][1], 1, column, right, 7, got, ROWS, MPI_DOUBLE,
                 left, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < ROWS; i++)
        CHECK(got[i] == 100 * left + COLUMNS * i + 1);
    MPI_Type_free(&column);
    CHECK(column == MPI_DATATYPE_NULL);
}

static void check_struct(void)
{
    struct pair {
        int number;
        double value;
    } out = {rank, 0.5 * rank}, in = {-1, -1};
    int lengths[] = {1, 1};
    MPI_Aint places[] = {offsetof(struct pair, number),
                         offsetof(struct pair, value)};
    MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE}, type;

    MPI_Type_create_struct(2, lengths, places, types, &type);
    MPI_Type_commit(&type);
    MPI_Sendrecv(&out, 1, type, right, 8, &in, 1, type, left, 8, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    CHECK(in.number == left && in.value == 0.5 * left);
    MPI_Type_free(&type);
}

/* ---- collectives, and functions that MPI calls ---- */

static void most_distant(void *in, void *inout, int *count, MPI_Datatype *type)
{
    int *a = in, *b = inout;

    (void)type;
    for (int i = 0; i < *count; i++)
        b[i] = abs(a[i]) > abs(b[i]) ? a[i] : b[i];
}

static void check_collectives(void)
{
    int value = -rank, most, all[64], sum = rank;
    MPI_Request request;
    MPI_Op op;

    MPI_Op_create(most_distant, 1, &op);
    MPI_Allreduce(&value, &most, 1, MPI_INT, op, MPI_COMM_WORLD);
    CHECK(most == 1 - size);
    MPI_Op_free(&op);
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++)
        CHECK(all[i] == i);
    MPI_Iallreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                   &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum == size * (size - 1) / 2);
}

static int copied, deleted;

static int copy(MPI_Comm comm, int keyval, void *state, void *value, void *to,
                int *flag)
{
    (void)comm;
    (void)keyval;
    (void)state;
    copied++;
    *(void **)to = value;
    *flag = 1;
    return MPI_SUCCESS;
}

static int forget(MPI_Comm comm, int keyval, void *value, void *state)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)state;
    deleted++;
    return MPI_SUCCESS;
}

static void check_communicators(void)
{
    int keyval, there, number, odd_rank, odd_size, attribute = 42;
    int *found = NULL;
    MPI_Comm same, half;

    MPI_Comm_create_keyval(copy, forget, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &attribute);
    MPI_Comm_dup(MPI_COMM_WORLD, &same);
    MPI_Comm_get_attr(same, keyval, &found, &there);
    CHECK(there && *found == 42 && copied == 1);
    MPI_Comm_compare(same, MPI_COMM_WORLD, &number);
    CHECK(number == MPI_CONGRUENT);
    MPI_Comm_free(&same);
    CHECK(deleted == 1);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval);
    MPI_Comm_free_keyval(&keyval);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &odd_rank);
    MPI_Comm_size(half, &odd_size);
    CHECK(odd_size == (size + 1 - rank % 2) / 2);
    CHECK(odd_rank == odd_size - 1 - rank / 2);
    MPI_Comm_free(&half);
}

/* The function by which MPICH copies a value. */
static void check_plain_copies(void)
{
    int keyval, there, attribute = 42;
    void *found = NULL;
    MPI_Comm same;

    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, NULL, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &attribute);
    MPI_Comm_dup(MPI_COMM_SELF, &same);
    MPI_Comm_get_attr(same, keyval, &found, &there);
    CHECK(there && found == &attribute);
    MPI_Comm_free(&same);
    MPI_Comm_delete_attr(MPI_COMM_SELF, keyval);
    MPI_Comm_free_keyval(&keyval);
}

/* ---- errors ---- */

static int handled;

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    MPI_Error_class(*code, &handled);
}

static void check_errors(void)
{
    char text[MPI_MAX_ERROR_STRING];
    MPI_Errhandler own;
    int code, n, class_of;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Send(&n, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    MPI_Error_class(code, &class_of);
    MPI_Error_string(code, text, &n);
    CHECK(class_of == MPI_ERR_RANK && n > 0);
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
    MPI_Send(&n, -1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    CHECK(handled == MPI_ERR_COUNT);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&own);
}

/* ---- threads ---- */

static void *exchange(void *argument)
{
    int tag = (int)(intptr_t)argument, in;

    for (int i = 0; i < TURNS; i++) {
        int out = 1000 * tag + i;

        MPI_Sendrecv(&out, 1, MPI_INT, right, tag, &in, 1, MPI_INT, left, tag,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(in == out);
    }
    return NULL;
}

static void check_threads(void)
{
    pthread_t threads[THREADS];

    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(threads + i, NULL, exchange, (void *)(20 + i));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    int provided, finalized;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    check_ring(1);
    check_ring(LONG);
    check_probe();
    check_persistent();
    check_column();
    check_struct();
    check_collectives();
    check_communicators();
    check_plain_copies();
    check_errors();
    check_threads();
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    MPI_Finalized(&finalized);
    printf(finalized ? "well\n" : "not finalized\n");
    return 0;
}
