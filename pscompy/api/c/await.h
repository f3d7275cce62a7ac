/* Awaits a Request. */
#pragma once

#include "request_life.h"

extern PyType_Spec psb_ended_spec;
/* The method Request.__await__(). */
PyObject *psb_request_await(psb_request_t *self);
