/* Errors: codes and their texts, and the handlers of communicators.
 *
 * Most codes are classes of MPI. An error of the core gets a code of its own,
 * in which its class is kept; its text says which peer and why. The texts of
 * the latest errors are kept, earlier codes have the text of their class. */
#include "library.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASS_BITS 8
#define CLASS_MASK ((1 << CLASS_BITS) - 1)
#define TEXTS 64u /* of the latest errors */
#define TEXT_COUNT 0xfffffu /* the number of an error is below it */

typedef struct told {
    int code;
    char text[MPI_MAX_ERROR_STRING];
} told_t;

static told_t told[TEXTS];
static unsigned n_told;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int psc_mpi_error_add(int class, const char *text)
{
    told_t *slot;
    int code;

    pthread_mutex_lock(&lock);
    n_told = (n_told + 1) & TEXT_COUNT;
    slot = told + n_told % TEXTS;
    code = slot->code = PSC_MPI_ERR_ADDED | (int)(n_told << CLASS_BITS) | class;
    snprintf(slot->text, sizeof slot->text, "%s", text);
    pthread_mutex_unlock(&lock);
    return code;
}

static int error_class(int status)
{
    switch (status) {
    case PSC_ERR_TRUNCATED:
        return MPI_ERR_TRUNCATE;
    case PSC_ERR_PEER_LOST:
        return MPIX_ERR_PROC_FAILED;
    case PSC_ERR_NO_MEMORY:
        return MPI_ERR_NO_MEM;
    case PSC_ERR_INVALID:
        return MPI_ERR_ARG;
    case PSC_ERR_UNSUPPORTED:
        return MPI_ERR_UNSUPPORTED_OPERATION;
    default:
        return MPI_ERR_OTHER;
    }
}

/* Write why an operation with a rank of the job has failed. */
static void error_text(int status, int rank, char *text, size_t room)
{
    psc_conn_t *conn = atomic_load(psc_mpi.conns + rank);
    char reason[MPI_MAX_ERROR_STRING] = "";

    if (conn)
        psc_mpi.host.api->conn_error(conn, reason, sizeof reason);
    snprintf(text, room, "rank %d: %s%s%s", rank, psc_status_string(status),
             reason[0] ? ": " : "", reason);
}

int psc_mpi_error_of(int status, int rank)
{
    char text[MPI_MAX_ERROR_STRING];
    int class = error_class(status);

    if (class == MPI_ERR_TRUNCATE)
        return class;
    if (rank >= 0 && psc_mpi_running())
        error_text(status, rank, text, sizeof text);
    else
        snprintf(text, sizeof text, "%s", psc_status_string(status));
    return psc_mpi_error_add(class, text);
}

/* ---- codes that the program adds ---- */

#define ADDED_MAX 512
/* In the code of one; the index is below it. */
#define ADDED_FLAG 0x20000000

typedef struct added {
    bool used;
    int class;
    int n_codes; /* of a class: its codes that are there */
    char text[MPI_MAX_ERROR_STRING];
} added_t;

static added_t *added[ADDED_MAX];
static int last_added = MPI_ERR_LASTCODE;

/* No class of MPI itself; negative numbers are no codes. */
static bool is_made(int code)
{
    return code > 0 && code & PSC_MPI_ERR_ADDED;
}

static added_t *added_of(int code)
{
    int index = code & ~(PSC_MPI_ERR_ADDED | ADDED_FLAG);

    if (!is_made(code) || !(code & ADDED_FLAG) || index >= ADDED_MAX ||
        !added[index] || !added[index]->used)
        return NULL;
    return added[index];
}

/* Returns the index of a free place, or -1. */
static int added_place(void)
{
    for (int i = 0; i < ADDED_MAX; i++) {
        if (!added[i])
            added[i] = calloc(1, sizeof **added);
        if (!added[i] || !added[i]->used)
            return added[i] ? i : -1;
    }
    return -1;
}

static void added_count(int class, int change)
{
    added_t *it = added_of(class);

    if (it)
        it->n_codes += change;
}

/* Add a code of a class, or a class if that is 0. */
static int added_create(int class, int *code)
{
    int index;

    pthread_mutex_lock(&lock);
    index = added_place();
    if (index >= 0) {
        last_added = *code = PSC_MPI_ERR_ADDED | ADDED_FLAG | index;
        *added[index] = (added_t){.used = true, .class = class ? class : *code};
        added_count(class, 1);
    }
    pthread_mutex_unlock(&lock);
    return index < 0 ? psc_mpi_raise(NULL, MPI_ERR_NO_MEM) : MPI_SUCCESS;
}

int psc_mpi_error_last(void)
{
    return last_added;
}

int MPI_Add_error_class(int *code)
{
    return added_create(0, code);
}

int MPI_Add_error_code(int class, int *code)
{
    return added_create(class, code);
}

int MPI_Add_error_string(int code, const char *text)
{
    added_t *it = added_of(code);

    if (!it)
        return psc_mpi_raise(NULL, MPI_ERR_ARG);
    snprintf(it->text, sizeof it->text, "%s", text);
    return MPI_SUCCESS;
}

/* A class can be removed when it has no codes, and neither can be while it has
 * a text. */
static int added_remove(int code, bool class)
{
    added_t *it = added_of(code);

    if (!it || (it->class == code) != class || it->n_codes || it->text[0])
        return psc_mpi_raise(NULL, MPI_ERR_ARG);
    it->used = false;
    if (!class)
        added_count(it->class, -1);
    return MPI_SUCCESS;
}

int MPI_Remove_error_class(int code)
{
    return added_remove(code, true);
}

int MPI_Remove_error_code(int code)
{
    return added_remove(code, false);
}

int MPI_Remove_error_string(int code)
{
    return MPI_Add_error_string(code, "");
}

/* ---- classes and texts ---- */

static const char *class_text(int class)
{
    switch (class) {
#define X(name, number, text)                                                  \
    case number:                                                               \
        return text;
        PSC_MPI_ERRORS(X)
#undef X
    default:
        return NULL;
    }
}

int MPI_Error_class(int code, int *class)
{
    const added_t *it = added_of(code);

    if (it)
        *class = it->class;
    else if (is_made(code))
        *class = code & CLASS_MASK;
    else
        *class = code;
    if (!it && !class_text(*class))
        return psc_mpi_raise(NULL, MPI_ERR_ARG);
    return MPI_SUCCESS;
}

static const char *code_text(int code)
{
    const added_t *it = added_of(code);
    const told_t *slot = told + (code >> CLASS_BITS & TEXT_COUNT) % TEXTS;

    if (it)
        return it->text;
    if (is_made(code) && slot->code == code)
        return slot->text;
    return class_text(is_made(code) ? code & CLASS_MASK : code);
}

int MPI_Error_string(int code, char *text, int *n)
{
    const char *known;

    pthread_mutex_lock(&lock);
    known = code_text(code);
    if (known)
        *n = snprintf(text, MPI_MAX_ERROR_STRING, "%s", known);
    pthread_mutex_unlock(&lock);
    return known ? MPI_SUCCESS : psc_mpi_raise(NULL, MPI_ERR_ARG);
}
