/* The type PersistentRequest. */
#pragma once

#include "call.h"

extern PyType_Spec psb_persistent_spec;
/* A PersistentRequest for the call. */
PyObject *psb_call_init(psb_call_t *call);
