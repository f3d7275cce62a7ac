/* Beginning and end of MPI, and what a program asks about its environment. */
#include "library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HOST_NAME "_host.so"

psc_mpi_t psc_mpi;

static pthread_t main_thread;

/* ---- threads that wait when MPI ends ---- */

#define LEAVE_MS 1000 /* for threads that wait */

static void library_ended(bool exits)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    atomic_store(&psc_mpi.exits, exits);
    atomic_store(&psc_mpi.finalized, true);
    for (int i = 0; i < LEAVE_MS && atomic_load(&psc_mpi.n_waiting) > 0; i++) {
        psc_mpi.host.api->wake(psc_mpi.host.worker);
        nanosleep(&moment, NULL);
    }
}

bool psc_mpi_wait_begin(void)
{
    atomic_fetch_add(&psc_mpi.n_waiting, 1);
    return !atomic_load(&psc_mpi.finalized);
}

/* The thread must not use its request any more, and an exception would meet an
 * interpreter that ends. */
static void stop_for_ever(void)
{
    if (psc_mpi.host.gil_held())
        psc_mpi.host.gil_release();
    for (;;)
        pause();
}

void psc_mpi_wait_end(void)
{
    atomic_fetch_sub(&psc_mpi.n_waiting, 1);
    if (atomic_load(&psc_mpi.exits))
        stop_for_ever();
}

/* ---- the beginning ---- */

static bool library_started(void)
{
    size_t n = (size_t)psc_mpi.host.size;

    psc_mpi.conns = calloc(n, sizeof *psc_mpi.conns);
    main_thread = pthread_self();
    atomic_store_explicit(&psc_mpi.initialized, true, memory_order_release);
    return psc_mpi.conns != NULL;
}

static void library_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    psc_mpi_comm_t *found = psc_mpi_comm_find(comm);

    if (found)
        psc_mpi_comm_set_handler(found, handler);
}

static MPI_Errhandler library_errhandler(MPI_Comm comm)
{
    psc_mpi_comm_t *found = psc_mpi_comm_find(comm);

    return found ? atomic_load(&found->errhandler) : MPI_ERRORS_ARE_FATAL;
}

static psc_mpi_library_t library = {
    .comm_create = psc_mpi_comm_create,
    .comm_move = psc_mpi_comm_move,
    .comm_destroy = psc_mpi_comm_destroy,
    .comm_errhandler = library_errhandler,
    .comm_set_errhandler = library_set_errhandler,
    .win_create = psc_mpi_win_create,
    .win_destroy = psc_mpi_win_destroy,
    .type_create = psc_mpi_type_create,
    .type_commit = psc_mpi_type_commit,
    .type_free = psc_mpi_type_free,
    .request_promise = psc_mpi_request_promise,
    .request_keep = psc_mpi_request_keep,
    .started = library_started,
    .error_add = psc_mpi_error_add,
    .error_last = psc_mpi_error_last,
    .ended = library_ended,
};

/* Find this library, and the host, which is in the same folder. */
static bool find_host(char *path, size_t room)
{
    Dl_info info;
    const char *end;

    if (!dladdr(&psc_mpi, &info) || !(end = strrchr(info.dli_fname, '/')))
        return false;
    library.path = info.dli_fname;
    return (size_t)snprintf(path, room, "%.*s/%s", (int)(end - info.dli_fname),
                            info.dli_fname, HOST_NAME) < room;
}

static bool init_host(char *text, size_t room)
{
    char path[PATH_MAX];
    psc_mpi_host_start_t *start;
    void *object;

    if (!find_host(path, sizeof path)) {
        snprintf(text, room, "the folder of libmpi.so.12 is not known");
        return false;
    }
    if (!psc_mpi_interpreter_start(text, room))
        return false;
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    *(void **)&start = object ? dlsym(object, PSC_MPI_HOST_START) : NULL;
    if (start)
        return start(&library, &psc_mpi.host, text, room);
    snprintf(text, room, "%s", dlerror());
    return false;
}

/* An error ends a program that is not Python: the first error handler is
 * MPI_ERRORS_ARE_FATAL. Python gets an exception. */
static int init(void)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    bool python = psc_mpi_interpreter_runs();

    if (atomic_load(&psc_mpi.initialized))
        return psc_mpi_raise(NULL, MPI_ERR_OTHER);
    if (init_host(text, sizeof text))
        return MPI_SUCCESS;
    fprintf(stderr, "pscompy: MPI_Init: %s\n", text);
    if (!python)
        exit(1);
    return psc_mpi_error_add(MPI_ERR_OTHER, text);
}

int MPI_Init(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return init();
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc;
    (void)argv;
    (void)required;
    *provided = MPI_THREAD_MULTIPLE;
    return init();
}

/* ---- the end ---- */

int MPI_Finalize(void)
{
    if (!psc_mpi_running())
        return psc_mpi_raise(NULL, MPI_ERR_OTHER);
    MPI_Buffer_flush();
    return psc_mpi.host.finalize();
}

int MPI_Abort(MPI_Comm comm, int code)
{
    (void)comm;
    if (psc_mpi_running())
        psc_mpi.host.abort(code);
    exit(code);
}

/* ---- the state ---- */

int MPI_Initialized(int *flag)
{
    *flag = atomic_load(&psc_mpi.initialized);
    return MPI_SUCCESS;
}

int MPI_Finalized(int *flag)
{
    *flag = atomic_load(&psc_mpi.finalized);
    return MPI_SUCCESS;
}

int MPI_Query_thread(int *provided)
{
    *provided = MPI_THREAD_MULTIPLE;
    return MPI_SUCCESS;
}

int MPI_Is_thread_main(int *flag)
{
    *flag = pthread_equal(pthread_self(), main_thread) != 0;
    return MPI_SUCCESS;
}

/* ---- versions and names ---- */

int MPI_Get_version(int *version, int *subversion)
{
    *version = MPI_VERSION;
    *subversion = MPI_SUBVERSION;
    return MPI_SUCCESS;
}

int MPI_Get_library_version(char *text, int *n)
{
    *n = snprintf(text, MPI_MAX_LIBRARY_VERSION_STRING, "pscompy %s",
                  PSC_MPI_LIBRARY_VERSION);
    return MPI_SUCCESS;
}

int MPI_Get_processor_name(char *text, int *n)
{
    if (gethostname(text, MPI_MAX_PROCESSOR_NAME) != 0)
        snprintf(text, MPI_MAX_PROCESSOR_NAME, "localhost");
    text[MPI_MAX_PROCESSOR_NAME - 1] = '\0';
    *n = (int)strlen(text);
    return MPI_SUCCESS;
}

/* ---- clocks ---- */

double MPI_Wtime(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double MPI_Wtick(void)
{
    return 1e-9;
}

int MPI_Pcontrol(int level, ...)
{
    (void)level;
    return MPI_SUCCESS;
}

/* ---- memory ---- */

int MPI_Alloc_mem(MPI_Aint nbytes, MPI_Info info, void *base)
{
    void *memory = nbytes < 0 ? NULL : malloc((size_t)nbytes + 1);

    (void)info;
    if (nbytes < 0)
        return psc_mpi_raise(NULL, MPI_ERR_ARG);
    if (!memory)
        return psc_mpi_raise(NULL, MPI_ERR_NO_MEM);
    *(void **)base = memory;
    return MPI_SUCCESS;
}

int MPI_Free_mem(void *memory)
{
    free(memory);
    return MPI_SUCCESS;
}

int MPI_Get_address(const void *memory, MPI_Aint *address)
{
    *address = (MPI_Aint)memory;
    return MPI_SUCCESS;
}

MPI_Aint MPI_Aint_add(MPI_Aint base, MPI_Aint offset)
{
    return base + offset;
}

MPI_Aint MPI_Aint_diff(MPI_Aint one, MPI_Aint other)
{
    return one - other;
}

/* ---- functions that live in Python ---- */

/* Call the error handler of the first communicator or window among the
 * arguments. */
static int raise_among(const psc_mpi_function_t *it, const intptr_t *values,
                       int code)
{
    for (const char *at = it->arguments; *at; at += 2) {
        if (at[0] == PSC_MPI_VALUE && at[1] == PSC_MPI_CODE_COMM)
            return psc_mpi_raise(psc_mpi_comm_find((MPI_Comm)*values), code);
        if (at[0] == PSC_MPI_VALUE && at[1] == PSC_MPI_CODE_WIN &&
            psc_mpi_win_find((MPI_Win)*values))
            return psc_mpi_raise_win(psc_mpi_win_find((MPI_Win)*values), code);
        values += at[0] == '[' || at[0] == ']' || at[0] == '%' ? 2 : 1;
    }
    return psc_mpi_raise(NULL, code);
}

int psc_mpi_python(psc_mpi_function_number_t number, const intptr_t *values)
{
    const psc_mpi_function_t *it = psc_mpi_functions + number;
    int code;

    if (!psc_mpi_running())
        return psc_mpi_raise(NULL, MPI_ERR_OTHER);
    code = psc_mpi.host.call(it, values);
    if (code == MPI_SUCCESS || code == PSC_MPI_ABSENT)
        return code;
    return raise_among(it, values, code);
}
