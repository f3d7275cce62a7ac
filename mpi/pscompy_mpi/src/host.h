/* Between the library and its host. The library (libmpi.so.12) names no symbol
 * of Python, so that programs which are not Python can be linked to it; the
 * host, a shared object of its own that MPI_Init loads, knows Python and opens
 * the World. Each gives the other a table of functions. */
#pragma once

#include <stdbool.h>

#include "pscompy/core/api.h"
#include "pscompy_mpi/src/entries.h"

/* the only symbol of the host */
#define PSC_MPI_HOST_START "psc_mpi_host_start"

/* The parts of a communicator, for psc_mpi_library_t.comm_create. */
typedef struct psc_mpi_comm_args {
    uint32_t context; /* of its messages */
    int rank, size; /* this process is `rank` of `size` */
    const int32_t *members; /* the rank in the job of each; NULL: the same */
    /* of an inter-communicator: how many of these ranks are the one group; the
     * others are the other one; else 0 */
    int n_first;
} psc_mpi_comm_args_t;

/* Where the data of a type is (psc_mpi_type_t); the numbers of a block are its
 * offset, run and number of dimensions, and of each of these the number of
 * items and their distance; those of an element are its size and how many there
 * are.
 */
typedef struct psc_mpi_commit_args {
    size_t n_blocks;
    const int64_t *blocks;
    int64_t times;
    size_t n_elements;
    const int64_t *elements;
} psc_mpi_commit_args_t;

/* Calls of the library for Python's functions. A handle's members must not be
 * used by another thread while comm_destroy runs. */
typedef struct psc_mpi_library {
    const char *path; /* of its file */
    /* Returns MPI_COMM_NULL if no memory is left. The first two communicators
     * are MPI_COMM_WORLD and MPI_COMM_SELF. */
    MPI_Comm (*comm_create)(const psc_mpi_comm_args_t *args);
    void (*comm_move)(MPI_Comm comm, uint32_t context);
    void (*comm_destroy)(MPI_Comm comm);
    MPI_Errhandler (*comm_errhandler)(MPI_Comm comm);
    void (*comm_set_errhandler)(MPI_Comm comm, MPI_Errhandler handler);
    /* Make a window whose ranks use this communicator, which stays the host's,
     * for barriers, and lock bytes of a file, which is closed with the window.
     * Returns MPI_WIN_NULL if no memory is left. */
    MPI_Win (*win_create)(MPI_Comm comm, int size, int file);
    void (*win_destroy)(MPI_Win win);
    MPI_Datatype (*type_create)(const MPI_Count bounds[5]);
    bool (*type_commit)(MPI_Datatype type, const psc_mpi_commit_args_t *args);
    void (*type_free)(MPI_Datatype type);
    MPI_Request (*request_promise)(MPI_Comm comm);
    void (*request_keep)(MPI_Request request, int code);
    /* The host's table is filled in. Returns false if no memory is left. */
    bool (*started)(void);
    int (*error_add)(int class, const char *text);
    int (*error_last)(void);
    /* From now on MPI is finalised: nothing enters Python or the core. Returns
     * when no thread waits in the core any more, but after a second at most. If
     * the process exits, these threads stop for ever; otherwise their calls
     * are errors. Call it without the GIL. */
    void (*ended)(bool exits);
} psc_mpi_library_t;

/* Calls of the host for the library. */
typedef struct psc_mpi_host {
    const psc_api_t *api;
    psc_worker_t *worker;
    int rank, size; /* in the job */

    /* Returns the connection to a rank of the job; NULL if that is not
     * possible. Takes the GIL. */
    psc_conn_t *(*connection)(int rank);
    /* A communicator that the program has freed, with this context, has no more
     * requests. Takes the GIL. */
    void (*comm_ended)(uint32_t context);

    bool (*gil_held)(void);
    void *(*gil_release)(void);
    void (*gil_take)(void *state);
    /* Run Python's handlers of signals, if this is the main thread. Returns
     * false if one has raised an exception, which is raised again once the
     * program is back in Python. Takes the GIL. */
    bool (*signals)(void);
    /* Deliver what the core has completed, after `wait` has returned
     * PSC_INPROGRESS: call the operations of the program. Takes the GIL. */
    void (*drain)(void);
    /* request_free of a collective whose function `drain` may call. Takes the
     * GIL. */
    void (*call_free)(psc_request_t *core);

    /* psc_mpi_python of entries.h, while MPI runs */
    int (*call)(const psc_mpi_function_t *function, const intptr_t *values);
    /* Close the World, at a barrier. */
    int (*finalize)(void);
    void (*abort)(int code);
} psc_mpi_host_t;

/* Open the World, fill in the host's table, and create the first two
 * communicators, after it has called `started`. Returns false with a reason in
 * `text` (room bytes) if that fails. */
typedef bool psc_mpi_host_start_t(const psc_mpi_library_t *library,
                                  psc_mpi_host_t *host, char *text,
                                  size_t room);
