/* Declarations that the files of the host share. They use Python's limited API,
 * so that one build serves all versions. */
#pragma once

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "host.h"

/* ---- host.c ---- */

extern const psc_mpi_library_t *psc_mpi_library;
extern PyObject *psc_mpi_module; /* pscompy_mpi.host */

/* ---- host_native.c ---- */

/* Returns the functions of the library that Python calls, as a module. */
PyObject *psc_mpi_native_create(void);

/* ---- host_call.c ---- */

/* Clear the exception that was raised, and raise it again in the main thread
 * once that is back in Python. */
void psc_mpi_error_later(void);
/* Clear the exception that was raised, if any. One that is no Exception, as
 * KeyboardInterrupt and SystemExit, is raised again later. */
void psc_mpi_error_clear(void);
/* Write the exception that was raised as text, and clear it so. */
void psc_mpi_error_text(char *text, size_t room);
/* Returns a code of an error for the exception that was raised, and clears
 * it. */
int psc_mpi_error_code(void);
/* psc_mpi_python of entries.h. Takes the GIL. */
int psc_mpi_host_call(const psc_mpi_function_t *function,
                      const intptr_t *values);
