/* The types that module.c registers and whose C files have no header of their
 * own. */
#pragma once

#include "state.h"

/* The value of `source` in a receive from any rank. It is not -1, because a
 * rank that a program computes wrongly must raise IndexError. */
#define PSB_ANY_SOURCE INT32_MIN

extern PyType_Spec psb_worker_spec, psb_connection_spec, psb_communicator_spec;
extern PyType_Spec psb_request_spec;
