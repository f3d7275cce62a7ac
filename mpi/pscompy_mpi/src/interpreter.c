/* Python, for the host: that of the program, or one that MPI_Init brings into a
 * program which is none. The launcher names it (PYTHON and LIBPYTHON of
 * places.py). The functions of libpython are found by name, so that the library
 * itself needs none. */
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#define PYTHON "PSCOMPY_MPI_PYTHON"
#define LIBPYTHON "PSCOMPY_MPI_LIBPYTHON"

static pid_t started_by; /* the process that has started the interpreter */

/* Returns the address of a function of Python, or NULL. */
static void *python(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

/* Extension modules look for Python's functions among the global ones. */
static bool load(char *text, size_t room)
{
    const char *path = getenv(LIBPYTHON), *name;

    if (!path) {
        snprintf(text, room,
                 "this program is not Python, and needs one: start it by "
                 "pscompy run --mpi -- program");
        return false;
    }
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL))
        return true;
    name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    snprintf(text, room,
             "this program is not Python, and needs its library: %s. Debian's "
             "package %.*s has it",
             dlerror(), (int)(strstr(name, ".so") - name), name);
    return false;
}

/* Have the interpreter find its packages as this executable does. Versions of
 * Python that lack the function find those of the first python3 on the PATH. */
static void set_program_name(const char *path)
{
    wchar_t *(*decode)(const char *, size_t *);
    void (*set)(const wchar_t *);

    *(void **)&decode = python("Py_DecodeLocale");
    *(void **)&set = python("Py_SetProgramName");
    if (path && decode && set)
        set(decode(path, NULL)); /* which keeps the pointer */
}

/* A program that fails ends as it is: the launcher sees it. Otherwise Python's
 * handlers close the World and sign off at the launcher. A forked child is no
 * rank. */
static void end(int code, void *unused)
{
    int (*ensure)(void), (*finalize)(void);

    (void)unused;
    if (code != 0 || getpid() != started_by)
        return;
    *(void **)&ensure = python("PyGILState_Ensure");
    *(void **)&finalize = python("Py_FinalizeEx");
    ensure();
    finalize();
}

static void start(void)
{
    void (*initialize)(int);
    void *(*release)(void);

    set_program_name(getenv(PYTHON));
    *(void **)&initialize = python("Py_InitializeEx");
    *(void **)&release = python("PyEval_SaveThread");
    initialize(0); /* signals stay the program's */
    release();
    started_by = getpid();
    on_exit(end, NULL);
}

bool psc_mpi_interpreter_runs(void)
{
    int (*is_initialized)(void);

    *(void **)&is_initialized = python("Py_IsInitialized");
    return is_initialized && is_initialized();
}

bool psc_mpi_interpreter_start(char *text, size_t room)
{
    if (!python("Py_IsInitialized") && !load(text, room))
        return false;
    if (!psc_mpi_interpreter_runs())
        start();
    return true;
}
