/* Methods of Request that report its completion, as futures have them. */
#pragma once

#include "request_life.h"

PyObject *psb_request_done(psb_request_t *self, PyObject *unused);
PyObject *psb_request_cancelled(psb_request_t *self, PyObject *unused);
/* Returns the error of a completed request, or None if it has succeeded. Raises
 * Cancelled if it was cancelled. */
PyObject *psb_request_error(psb_request_t *self);
PyObject *psb_request_on_done(psb_request_t *self, PyObject *fn);
PyObject *psb_request_add_done_callback(psb_request_t *self, PyObject *fn);
PyObject *psb_request_remove_done_callback(psb_request_t *self, PyObject *fn);
