/* The types that module.c registers, and whose files offer no functions to
 * others. */
#pragma once

#include "state.h"

/* Not -1: a rank that a program computes wrongly must raise IndexError. */
#define PSB_ANY_SOURCE INT32_MIN

extern PyType_Spec psb_worker_spec, psb_connection_spec, psb_communicator_spec;
extern PyType_Spec psb_request_spec;
