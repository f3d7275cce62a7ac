/* The type PersistentRequest: an operation that a program describes once and
 * starts many times. */
#pragma once

#include "call.h"

extern PyType_Spec psb_persistent_spec;
/* Returns a PersistentRequest; each start of it makes this call. */
PyObject *psb_call_init(psb_call_t *call);
