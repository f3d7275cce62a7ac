/* Exceptions for statuses of the core, and exceptions that are set aside while
 * other code runs. */
#pragma once

#include "state.h"

/* Returns the exception for a status of the core: origin._exception(status,
 * nbytes), or that of pscompy.errors.from_status if origin is NULL. Returns a
 * new reference, or NULL. */
PyObject *psb_exception(psb_state_t *state, PyObject *origin, int status,
                        uint64_t nbytes);
/* The default of the method _exception(status, nbytes) of Connection and
 * World. */
PyObject *psb_default_exception(psb_state_t *state, PyObject *const *args,
                                Py_ssize_t n_args);
/* Raises the exception that psb_exception() returns; always returns NULL. */
PyObject *psb_raise(psb_state_t *state, PyObject *origin, int status,
                    uint64_t nbytes);

/* The bytes that a put or a get asked for, and the size of the peer's
 * region. */
typedef struct psb_bounds {
    uint64_t offset, nbytes, size;
} psb_bounds_t;
PyObject *psb_raise_bounds(psb_state_t *state, PyObject *origin,
                           const psb_bounds_t *bounds);
/* An exception that was set aside, to be raised again later. */
typedef struct psb_raised {
    PyObject *type, *value, *traceback;
} psb_raised_t;
psb_raised_t psb_raised_take(void);
void psb_raised_restore(psb_raised_t raised);
/* Returns the exception that is raised now, without its type and traceback;
 * clears Python's error indicator. */
PyObject *psb_raised_instance(void);
