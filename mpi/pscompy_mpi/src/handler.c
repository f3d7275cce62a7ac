/* Error handlers: what is called when a function is about to return an error.
 */
#include "library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A handler that the program has made. It is freed when neither the program nor
 * a communicator or window has it. */
typedef struct handler {
    psc_mpi_object_t head;
    MPI_Comm_errhandler_function *function;
    atomic_int holders;
} handler_t;

static psc_mpi_table_t handlers =
    PSC_MPI_TABLE(PSC_MPI_ERRHANDLER, handler_t, 0);

static bool handler_exists(MPI_Errhandler handle)
{
    return handle == MPI_ERRORS_ARE_FATAL || handle == MPI_ERRORS_RETURN ||
           handle == MPI_ERRORS_ABORT ||
           psc_mpi_object_find(&handlers, handle) != NULL;
}

static void handler_hold(MPI_Errhandler handle)
{
    handler_t *handler = psc_mpi_object_find(&handlers, handle);

    if (handler)
        atomic_fetch_add(&handler->holders, 1);
}

static void handler_let_go(MPI_Errhandler handle)
{
    handler_t *handler = psc_mpi_object_find(&handlers, handle);

    if (handler && atomic_fetch_sub(&handler->holders, 1) == 1)
        psc_mpi_object_free(&handlers, handler);
}

/* ---- errors ---- */

static void handler_abort(int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;

    MPI_Error_string(code, text, &n);
    fprintf(stderr, "MPI error: %s\n", text);
    if (psc_mpi_running())
        psc_mpi.host.abort(1);
    exit(1);
}

/* Call a handler for an object, whose handle `object` points to. */
static int handler_call(MPI_Errhandler handle, int *object, int code)
{
    handler_t *handler = psc_mpi_object_find(&handlers, handle);

    if (handler)
        handler->function(object, &code);
    else if (handle != MPI_ERRORS_RETURN)
        handler_abort(code);
    return code;
}

int psc_mpi_raise(psc_mpi_comm_t *comm, int code)
{
    psc_mpi_comm_t *owner = comm ? comm : psc_mpi_comm_find(MPI_COMM_SELF);

    if (!owner)
        return code;
    return handler_call(atomic_load(&owner->errhandler), &owner->handle, code);
}

int psc_mpi_raise_win(psc_mpi_win_t *win, int code)
{
    return handler_call(atomic_load(&win->errhandler), &win->handle, code);
}

/* ---- functions ---- */

int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function *function,
                               MPI_Errhandler *handle)
{
    handler_t *handler = psc_mpi_object_create(&handlers);

    if (!handler)
        return psc_mpi_raise(NULL, MPI_ERR_NO_MEM);
    handler->function = function;
    atomic_store(&handler->holders, 1);
    *handle = psc_mpi_object_handle(handler);
    return MPI_SUCCESS;
}

/* The function of a window's handler takes what that of a communicator's
 * does. */
int MPI_Win_create_errhandler(MPI_Win_errhandler_function *function,
                              MPI_Errhandler *handle)
{
    return MPI_Comm_create_errhandler(function, handle);
}

int MPI_Errhandler_free(MPI_Errhandler *handle)
{
    if (!handler_exists(*handle))
        return psc_mpi_raise(NULL, MPI_ERR_ERRHANDLER);
    handler_let_go(*handle);
    *handle = MPI_ERRHANDLER_NULL;
    return MPI_SUCCESS;
}

int MPI_Comm_get_errhandler(MPI_Comm handle, MPI_Errhandler *found)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);

    if (!comm)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    *found = atomic_load(&comm->errhandler);
    handler_hold(*found);
    return MPI_SUCCESS;
}

int MPI_Comm_set_errhandler(MPI_Comm handle, MPI_Errhandler handler)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);

    if (!comm)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    if (!handler_exists(handler))
        return psc_mpi_raise(comm, MPI_ERR_ERRHANDLER);
    psc_mpi_comm_set_handler(comm, handler);
    return MPI_SUCCESS;
}

void psc_mpi_handler_set(_Atomic MPI_Errhandler *place, MPI_Errhandler handler)
{
    handler_hold(handler);
    handler_let_go(atomic_exchange(place, handler));
}

void psc_mpi_comm_set_handler(psc_mpi_comm_t *comm, MPI_Errhandler handler)
{
    psc_mpi_handler_set(&comm->errhandler, handler);
}

int MPI_Comm_call_errhandler(MPI_Comm handle, int code)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(handle);

    if (!comm)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    psc_mpi_raise(comm, code);
    return MPI_SUCCESS;
}

/* ---- functions of windows ---- */

int MPI_Win_get_errhandler(MPI_Win handle, MPI_Errhandler *found)
{
    psc_mpi_win_t *win = psc_mpi_win_find(handle);

    if (!win)
        return psc_mpi_raise(NULL, MPI_ERR_WIN);
    *found = atomic_load(&win->errhandler);
    handler_hold(*found);
    return MPI_SUCCESS;
}

int MPI_Win_set_errhandler(MPI_Win handle, MPI_Errhandler handler)
{
    psc_mpi_win_t *win = psc_mpi_win_find(handle);

    if (!win)
        return psc_mpi_raise(NULL, MPI_ERR_WIN);
    if (!handler_exists(handler))
        return psc_mpi_raise_win(win, MPI_ERR_ERRHANDLER);
    psc_mpi_handler_set(&win->errhandler, handler);
    return MPI_SUCCESS;
}

int MPI_Win_call_errhandler(MPI_Win handle, int code)
{
    psc_mpi_win_t *win = psc_mpi_win_find(handle);

    if (!win)
        return psc_mpi_raise(NULL, MPI_ERR_WIN);
    psc_mpi_raise_win(win, code);
    return MPI_SUCCESS;
}
